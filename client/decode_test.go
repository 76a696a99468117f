package sluice

import (
	"encoding/json"
	"os"
	"testing"
	"unicode/utf8"
)

// FuzzDecode compares the decoder with encoding/json on whatever that accepts.
func FuzzDecode(f *testing.F) {
	text, err := os.ReadFile("../clients/testdata/vectors.json")
	if err != nil {
		f.Fatal(err)
	}
	var vectors struct {
		Cases []struct {
			Steps []struct {
				Answer struct{ Body json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		f.Fatal(err)
	}
	for _, c := range vectors.Cases {
		for _, step := range c.Steps {
			f.Add([]byte(step.Answer.Body))
		}
	}
	f.Add([]byte(` { "allowed" : true , "plan" : "\u00e9\"\ud835\udd4f", "limit":1e3, "x":[{},[],"]",-0.5e-3,null,false] , "tiers":null}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		got, ok := decodeDecision(answer, 200)
		var want map[string]any
		if !ok || !utf8.Valid(answer) || json.Unmarshal(answer, &want) != nil {
			return // it may refuse more, such as a limit of 1e99, and read laxly what is no JSON
		}
		plan, _ := want["plan"].(string)
		limit, _ := want["limit"].(float64)
		tiers, _ := want["tiers"].([]any)
		if want["allowed"] != true || got.Plan != plan || got.Limit != int64(limit) || len(got.Tiers) != len(tiers) {
			t.Fatalf("%s is read as %+v", answer, got)
		}
		for i, tier := range tiers {
			want, _ := tier.(map[string]any)
			id, _ := want["rule_id"].(float64)
			pattern, _ := want["key_pattern"].(string)
			remaining, _ := want["remaining"].(float64)
			if got := got.Tiers[i]; got.RuleID != int64(id) || got.KeyPattern != pattern || got.Remaining != remaining {
				t.Errorf("tier %d of %s is read as %+v", i, answer, got)
			}
		}
	})
}
