package httpapi_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/httpapi"
)

type note struct {
	Text string   `json:"text"`
	Tags []string `json:"tags"`
}

func readNote(body string) (n note, err error) {
	var r httpapi.Reader
	r.Reset(bytes.NewBufferString(body))
	if r.Object() {
		for r.More() {
			switch r.Name().String() {
			case "text":
				n.Text = r.Text(20)
			case "tags":
				if r.Array() {
					for r.More() {
						n.Tags = append(n.Tags, r.Text(20))
					}
				}
			default:
				r.RefuseUnknown("text and tags")
			}
		}
	}
	return n, r.Close()
}

func decodeNote(body string) (n note, err error) {
	err = httpapi.Decode([]byte(body), &n)
	return n, err
}

func TestGoodBodiesAreRead(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want note
	}{
		"with all fields":                 {`{"text":"a","tags":["b","c"]}`, note{"a", []string{"b", "c"}}},
		"with none":                       {`{}`, note{}},
		"with white space around":         {" \t\r\n{ \"text\" : \"a\" }\n", note{Text: "a"}},
		"with escapes and a surrogate":    {`{"text":"\u00e9\n\ud83d\ude00"}`, note{Text: "é\n😀"}},
		"with a backslash before u0000":   {`{"text":"\\u0000"}`, note{Text: `\u0000`}},
		"with U+FFFD sent as a character": {`{"text":"\ufffd"}`, note{Text: "\ufffd"}},
	}
	for name, test := range tests {
		for reader, read := range map[string]func(string) (note, error){
			"token by token": readNote,
			"into a value":   decodeNote,
		} {
			t.Run(name+" "+reader, func(t *testing.T) {
				t.Parallel()
				got, err := read(test.body)
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if got.Text != test.want.Text || !slices.Equal(got.Tags, test.want.Tags) {
					t.Errorf("read %+v, want %+v", got, test.want)
				}
			})
		}
	}
}

func TestBadBodiesAreRefusedWhereTheyAreWrong(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body    string
		pointer string
	}{
		"empty":                          {``, ""},
		"cut off":                        {`{"text":"a"`, ""},
		"cut off in a string":            {`{"text":"a`, ""},
		"trailing object":                {`{}{}`, ""},
		"trailing comma":                 {`{"text":"a",}`, ""},
		"trailing garbage":               {`{} x`, ""},
		"array for object":               {`["a"]`, ""},
		"string for object":              {`"a"`, ""},
		"number in an array":             {`{"tags":["a",1]}`, "/tags/1"},
		"unknown field":                  {`{"extra":{"text":1}}`, "/extra"},
		"field in another case":          {`{"Text":"a"}`, "/Text"},
		"field given twice":              {`{"text":"a","text":"a"}`, "/text"},
		"field given twice by an escape": {`{"text":"a","t\u0065xt":"a"}`, "/text"},
		"number for string":              {`{"text":1}`, "/text"},
		"string for array":               {`{"tags":"a"}`, "/tags"},
		"invalid UTF-8":                  {"{\"text\":\"\xff\"}", "/text"},
		"overlong UTF-8":                 {"{\"text\":\"\xc0\x80\"}", "/text"},
		"lone high surrogate":            {`{"text":"\ud800"}`, "/text"},
		"lone low surrogate":             {`{"text":"\udc00a"}`, "/text"},
		"swapped surrogates":             {`{"text":"\udc00\ud800"}`, "/text"},
		"NUL escaped":                    {`{"text":"a\u0000"}`, "/text"},
		"NUL raw":                        {"{\"text\":\"a\x00\"}", "/text"},
		"NUL deep inside":                {`{"tags":["\\u0000","\u0000"]}`, "/tags/1"},
		"byte order mark":                {"\ufeff{}", ""},
		"single quotes":                  {`{'text':'a'}`, ""},
		"comment":                        {`{/**/}`, ""},
	}
	for name, test := range tests {
		for reader, read := range map[string]func(string) (note, error){
			"token by token": readNote,
			"into a value":   decodeNote,
		} {
			t.Run(name+" "+reader, func(t *testing.T) {
				t.Parallel()
				_, err := read(test.body)
				var problem *httpapi.Problem
				if !errors.As(err, &problem) {
					t.Fatalf("answered %v, want a problem", err)
				}
				if problem.Status != 400 || problem.Type != httpapi.InvalidRequest.Type {
					t.Errorf("problem is %d %s", problem.Status, problem.Type)
				}
				if len(problem.Fields) == 0 || problem.Fields[0].Pointer != test.pointer ||
					problem.Fields[0].Detail == "" {
					t.Errorf("errors are %q, want the first at %q", problem.Fields, test.pointer)
				}
			})
		}
	}
}

func TestReaderTellsAllMistakesAtOnceUpToTwenty(t *testing.T) {
	t.Parallel()
	_, err := readNote(`{"a":1,"text":null,"tags":["fine",{"x":[1,2]},"` + strings.Repeat("é", 11) + `"]}`)
	var problem *httpapi.Problem
	if !errors.As(err, &problem) {
		t.Fatalf("answered %v, want a problem", err)
	}
	want := []httpapi.FieldError{
		{Pointer: "/a", Detail: "is not a known field; the fields are text and tags"},
		{Pointer: "/text", Detail: "must be a string; leave it out to give none"},
		{Pointer: "/tags/1", Detail: "must be a string; leave it out to give none"},
		{Pointer: "/tags/2", Detail: "is 22 bytes long; at most 20 are accepted"},
	}
	if !slices.Equal(problem.Fields, want) {
		t.Errorf("errors are\n%q, want\n%q", problem.Fields, want)
	}

	_, err = readNote(`{"tags":[` + strings.Repeat("1,", 1000) + `1]}`)
	if !errors.As(err, &problem) || len(problem.Fields) != 20 {
		t.Errorf("1001 mistakes: answered %v, want 20 errors", err)
	}
}

func TestReaderCanBeUsedAgainAfterAMistake(t *testing.T) {
	t.Parallel()
	var r httpapi.Reader
	r.Reset(bytes.NewBufferString(`{"a":`))
	r.Skip()
	if r.Close() == nil {
		t.Fatal("a body that is cut off was accepted")
	}
	r.Reset(bytes.NewBufferString(` 12.50 `))
	if got := r.Number(); got != "12.50" {
		t.Errorf("read %q, want every digit of 12.50", got)
	}
	if err := r.Close(); err != nil {
		t.Errorf("refused: %v", err)
	}
}
