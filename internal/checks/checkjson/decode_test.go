package checkjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAmountsAreWrittenExactlyAndNeverNegative(t *testing.T) {
	t.Parallel()
	for amount, want := range map[enforce.Tokens]string{
		-1: "0", 0: "0", 1: "0.000001", 650_000: "0.65", enforce.Token: "1", 10*enforce.Token + 10: "10.00001",
		rules.MaxCost - 1: "999999999.999999", rules.MaxCost: "1000000000",
	} {
		if got := string(appendTokens(nil, amount)); got != want {
			t.Errorf("%d millionths are written %s, want %s", amount, got, want)
		}
	}
}

// A name that a check may carry and no pattern can name, or the other way round, could never match.
func TestAttributeNamesAreThoseOfKeyPatterns(t *testing.T) {
	t.Parallel()
	names := []string{
		"", "a.b-c_D9", strings.Repeat("n", rules.MaxAttributeNameLength),
		strings.Repeat("n", rules.MaxAttributeNameLength+1), "é",
	}
	for c := rune(0); c < 256; c++ {
		names = append(names, "a"+string(c))
	}
	for _, name := range names {
		_, err := rules.ParsePattern("attr." + name + ":x")
		if inPattern := err == nil; inPattern != rules.IsAttributeName(name) {
			t.Errorf("%q: a check accepts it: %v, a pattern accepts it: %v", name, rules.IsAttributeName(name),
				inPattern)
		}
	}
}

// FuzzAcceptedChecksMeanWhatTheyMeanToOthers compares the decoder with encoding/json and math/big: they must read every
// accepted body with the same values.
func FuzzAcceptedChecksMeanWhatTheyMeanToOthers(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"user_id":"42","plan":"pro","endpoint":"/api/search","method":"GET","ip":"203.0.113.9","cost":1,"attributes":{"org":"acme"}}`,
		`{"user_id":-9007199254740993,"cost":1.5e-3}`, `{"user_id":"\u00e9\ud83d\ude00\\u0000"}`,
		`{"cost":0.1,"cost":0.2}`,
		`{"ip":"::ffff:192.0.2.1","attributes":{}}`, `{"user_id":1e3}`, "{\"user_id\":\"\xff\"}", ` { } `, `{"Cost":1}`,
		`{"cost":1e9}`, `{"cost":2,"record":true,"record_id":"0123456789abcdef"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r httpapi.Reader
		r.Reset(bytes.NewBuffer(bytes.Clone(body)))
		got := DecodeCheck(&r)
		if r.Close() != nil {
			return
		}
		want := struct {
			UserID     json.RawMessage   `json:"user_id"`
			Plan       *string           `json:"plan"`
			Endpoint   *string           `json:"endpoint"`
			Method     *string           `json:"method"`
			IP         *string           `json:"ip"`
			Cost       *json.Number      `json:"cost"`
			Attributes map[string]string `json:"attributes"`
			Record     *bool             `json:"record"`
			RecordID   *string           `json:"record_id"`
		}{}
		strict := json.NewDecoder(bytes.NewReader(body))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&want); err != nil || !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("accepted %q, which encoding/json does not: %v", body, err)
		}
		var userID string
		if len(want.UserID) > 0 && want.UserID[0] == '"' {
			if err := json.Unmarshal(want.UserID, &userID); err != nil {
				t.Fatal(err)
			}
		} else {
			userID = string(want.UserID)
		}
		for _, field := range []struct{ name, got, want string }{
			{"user_id", got.UserID, userID},
			{"plan", got.Plan, value(want.Plan)},
			{"endpoint", got.Endpoint, value(want.Endpoint)},
			{"method", got.Method, value(want.Method)},
		} {
			if field.got != field.want || strings.Contains(field.got, "\x00") {
				t.Errorf("%s of %q is %q, want %q", field.name, body, field.got, field.want)
			}
		}
		if ip := value(want.IP); ip != "" && got.IP != netip.MustParseAddr(ip).Unmap() || ip == "" && got.IP.IsValid() {
			t.Errorf("ip of %q is %v, want %q", body, got.IP, ip)
		}
		cost := big.NewRat(1, 1)
		if want.Cost != nil {
			cost.SetString(want.Cost.String())
		}
		if cost.Cmp(big.NewRat(int64(got.Cost), int64(enforce.Token))) != 0 {
			t.Errorf("cost of %q is %d millionths, want %v", body, got.Cost, cost)
		}
		if len(got.Attributes) != len(want.Attributes) {
			t.Errorf("attributes of %q are %v, want %v", body, got.Attributes, want.Attributes)
		}
		for _, a := range got.Attributes {
			if v, ok := want.Attributes[a.Name]; !ok || v != a.Value {
				t.Errorf("attributes of %q are %v, want %v", body, got.Attributes, want.Attributes)
			}
		}
	})
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestCostsByMeter(t *testing.T) {
	t.Parallel()
	read := func(body string) (enforce.Check, error) {
		var r httpapi.Reader
		r.Reset(bytes.NewBufferString(body))
		check := DecodeCheck(&r)
		return check, r.Close()
	}
	check, err := read(`{"costs": {"input_tokens": 1200.5, "requests": 2, "usd": 0}}`)
	if err != nil || check.Cost != 2*enforce.Token || len(check.Costs) != 2 ||
		check.Costs[0] != (enforce.MeterCost{Meter: "input_tokens", Cost: 1200_500_000}) ||
		check.Costs[1] != (enforce.MeterCost{Meter: "usd"}) {
		t.Errorf("read as %+v, %v", check, err)
	}
	if check, err := read(`{"costs": {"usd": 1}}`); err != nil || check.Cost != enforce.Token {
		t.Errorf("requests cost %d, %v, want 1", check.Cost, err)
	}
	for body, pointer := range map[string]string{
		`{"cost": 1, "costs": {"usd": 1}}`:                                   "/costs",
		`{"costs": {"usd": 1}, "cost": 1}`:                                   "/cost",
		`{"costs": {"USD": 1}}`:                                              "/costs/USD",
		`{"costs": {"usd": -1}}`:                                             "/costs/usd",
		`{"costs": {"usd": 0.0000001}}`:                                      "/costs/usd",
		`{"costs": {"usd": 1000000001}}`:                                     "/costs/usd",
		`{"costs": {"usd": "1"}}`:                                            "/costs/usd",
		`{"costs": {"usd": 1, "usd": 2}}`:                                    "/costs/usd",
		`{"costs": {"usd": NaN}}`:                                            "/costs/usd",
		`{"costs": [1]}`:                                                     "/costs",
		`{"costs": {"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}}`: "/costs",
	} {
		var problem *httpapi.Problem
		if _, err := read(body); !errors.As(err, &problem) || len(problem.Fields) != 1 ||
			problem.Fields[0].Pointer != pointer {
			t.Errorf("%s: %v, want one mistake at %s", body, err, pointer)
		}
	}
}
