package checkjson

import (
	"bytes"
	"encoding/json"
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
