package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxFieldErrors bounds the mistakes that are reported together, and thereby the work to find them.
const MaxFieldErrors = 20

const maxPointer = 1000 // bytes; a pointer into ten thousand brackets helps nobody

// Reader reads a JSON body strictly, token by token, for hot paths. It records values of a wrong kind, and continues,
// so that the caller learns all mistakes together. After invalid JSON, More returns false and every other method the
// zero value.
type Reader struct {
	decoder jsontext.Decoder
	fields  []FieldError
	broken  bool
}

// Reset starts reading the body in buf, which must not change until Close.
func (r *Reader) Reset(buf *bytes.Buffer) {
	r.decoder.Reset(buf)
	r.fields, r.broken = nil, false
}

// Close checks that nothing follows the value, and returns all mistakes as one *Problem, or nil.
func (r *Reader) Close() error {
	if !r.broken {
		if _, err := r.decoder.ReadToken(); err == nil {
			r.fields = append(r.fields, FieldError{"", "must hold one JSON value and nothing after it"})
		} else if !errors.Is(err, io.EOF) {
			r.fail(err)
		}
	}
	return BodyProblem(r.fields)
}

// BodyProblem returns the answer to a body with these mistakes, or nil.
func BodyProblem(mistakes []FieldError) error {
	if len(mistakes) == 0 {
		return nil
	}
	return InvalidRequest.Problem("Correct the fields listed in errors; nothing was done.",
		mistakes[:min(len(mistakes), MaxFieldErrors)]...)
}

// Object opens an object, or skips another value and returns false.
func (r *Reader) Object() bool { return r.open(jsontext.KindBeginObject, "must be an object") }

// Array opens an array, or skips another value and returns false.
func (r *Reader) Array() bool { return r.open(jsontext.KindBeginArray, "must be an array") }

func (r *Reader) open(kind jsontext.Kind, detail string) bool {
	if r.decoder.PeekKind() != kind {
		r.Skip()
		r.Refuse(detail)
		return false
	}
	r.token()
	return !r.broken
}

// More reports whether the open object or array has another member, and closes it if not.
func (r *Reader) More() bool {
	switch r.decoder.PeekKind() {
	case jsontext.KindEndObject, jsontext.KindEndArray:
		r.token()
		return false
	case jsontext.KindInvalid:
		r.token() // records the error
	}
	return !r.broken
}

// Name reads a member's name, valid until the next read; switching over its String does not allocate.
func (r *Reader) Name() jsontext.Token { return r.token() }

// Text reads a string of at most maxBytes bytes of UTF-8 without NUL.
func (r *Reader) Text(maxBytes int) string {
	if r.decoder.PeekKind() != jsontext.KindString {
		r.Skip()
		r.Refuse("must be a string; leave it out to give none")
		return ""
	}
	s := r.token().String()
	switch {
	case r.broken:
		return ""
	case len(s) > maxBytes:
		r.Refuse(fmt.Sprintf("is %d bytes long; at most %d are accepted", len(s), maxBytes))
		return ""
	case strings.IndexByte(s, 0) >= 0:
		r.Refuse("contains the character NUL (\\u0000); remove it")
		return ""
	}
	return s
}

// IsNumber reports whether the next value is a number.
func (r *Reader) IsNumber() bool { return r.decoder.PeekKind() == jsontext.KindNumber }

// Number returns a number as written, so that no digit is lost.
func (r *Reader) Number() string {
	if !r.IsNumber() {
		r.Skip()
		r.Refuse("must be a number; leave it out to give none")
		return ""
	}
	t := r.token()
	if r.broken {
		return ""
	}
	return t.String()
}

// Bool reads true or false.
func (r *Reader) Bool() bool {
	switch r.decoder.PeekKind() {
	case jsontext.KindTrue, jsontext.KindFalse:
		t := r.token()
		return !r.broken && t.Bool()
	}
	r.Skip()
	r.Refuse("must be true or false")
	return false
}

// Skip reads any value.
func (r *Reader) Skip() {
	if !r.broken {
		if err := r.decoder.SkipValue(); err != nil {
			r.fail(err)
		}
	}
}

// Refuse records a mistake in the last value or name.
func (r *Reader) Refuse(detail string) {
	if !r.broken {
		r.RefuseAt(string(r.decoder.StackPointer()), detail)
	}
}

// RefuseAt records a mistake in the value at a pointer.
func (r *Reader) RefuseAt(pointer, detail string) {
	if len(r.fields) < MaxFieldErrors {
		r.fields = append(r.fields, FieldError{pointer, detail})
	}
}

// RefuseUnknown skips and refuses the member whose name was read last.
func (r *Reader) RefuseUnknown(known string) {
	r.Refuse("is not a known field; the fields are " + known)
	r.Skip()
}

func (r *Reader) token() jsontext.Token {
	if r.broken {
		return jsontext.Null
	}
	t, err := r.decoder.ReadToken()
	if err != nil {
		r.fail(err)
		return jsontext.Null
	}
	return t
}

func (r *Reader) fail(err error) {
	if !r.broken {
		r.broken = true
		r.fields = append(r.fields, syntaxError(err))
	}
}

func syntaxError(err error) FieldError {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return FieldError{"", "ends before its JSON value does"}
	case !errors.As(err, &syntax):
		return FieldError{"", "is not JSON"}
	case errors.Is(err, jsontext.ErrDuplicateName):
		return FieldError{string(syntax.JSONPointer), "is given twice; send it once"}
	}
	if len(syntax.JSONPointer) > maxPointer {
		return FieldError{"", fmt.Sprintf("is not JSON at byte %d, deep inside: %v", syntax.ByteOffset, syntax.Err)}
	}
	return FieldError{
		string(syntax.JSONPointer),
		fmt.Sprintf("is not JSON at byte %d: %v", syntax.ByteOffset, syntax.Err),
	}
}

// Decode fills v, a pointer, as strictly as a Reader, except that it stops at the first mistake and leaves null to
// v's type.
func Decode(body []byte, v any) error {
	if mistake, ok := decode(body, v); !ok {
		return BodyProblem([]FieldError{mistake})
	}
	return nil
}

// Wrong is an Unmarshaler's error about a value, as a FieldError's Detail.
type Wrong string

func (w Wrong) Error() string { return string(w) }

func decode(body []byte, v any) (mistake FieldError, ok bool) {
	err := json.Unmarshal(body, v, json.RejectUnknownMembers(true))
	var semantic *json.SemanticError
	switch {
	case err == nil:
		pointer, found := findNUL(body)
		return FieldError{pointer, "contains the character NUL (\\u0000); remove it"}, !found
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &semantic):
		return FieldError{string(semantic.JSONPointer), "is not a known field; remove it"}, false
	case errors.As(err, &semantic) && errors.As(err, new(Wrong)):
		return FieldError{string(semantic.JSONPointer), semantic.Err.Error()}, false
	case errors.As(err, &semantic):
		return FieldError{string(semantic.JSONPointer), fmt.Sprintf("cannot be a JSON %v", semantic.JSONKind)}, false
	}
	return syntaxError(err), false
}

// findNUL finds a string or name with NUL, which JSON must escape, so that most bodies need no second pass.
func findNUL(body []byte) (pointer string, found bool) {
	if !bytes.Contains(body, []byte(`\u0000`)) {
		return "", false
	}
	decoder := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		t, err := decoder.ReadToken()
		if err != nil {
			return "", false
		}
		if t.Kind() == jsontext.KindString && strings.IndexByte(t.String(), 0) >= 0 {
			return string(decoder.StackPointer()), true
		}
	}
}
