package sluice

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
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

// Decisions of a batch are read by comparing them with the one before.
func TestABatchIsReadAsItsDecisionsAloneAre(t *testing.T) {
	t.Parallel()
	usual := `{"status":200,"allowed":true,"plan":"pro","reason":null,"limit":50,"remaining":49,"reset_after_ms":100,"degraded":false,"tiers":[` +
		`{"rule_id":12,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"enforce","allowed":true,"limit":50,"remaining":49.5,"retry_after_ms":0,"reset_after_ms":100},` +
		`{"rule_id":13,"name":"day","scope":"global","key_pattern":"global","mode":"shadow","allowed":true,"limit":7,"remaining":5,"retry_after_ms":0,"reset_after_ms":9}]}`
	answers := []string{usual}
	for _, change := range [][2]string{
		{`"limit":50`, `"limit":500`},
		{`"limit":7`, `"limit":70`},
		{`"plan":"pro"`, `"plan":null`},
		{`"name":"day"`, `"name":"da"`},
		{`49.5`, `4`},
		{`"status":200,"allowed":true`, `"status":429,"allowed":false`},
		{`"enforce"`, `"shadow"`},
		{`"remaining":49,`, ``},
		{`"remaining":49.5,`, ``},
		{`"remaining":5,`, `"unknown":[{"remaining":1}],"remaining":5, "limit":8,`},
		{`"tiers":[`, `"tiers":[{"rule_id":9,"remaining":1,"name":"first"},`},
		{`"remaining":49,`, `"remaining":48,"plan":"later",`},
		{`{"rule_id":12,`, `{"remaining":3,"rule_id":14,`},
	} {
		answers = append(answers, strings.Replace(usual, change[0], change[1], 1))
	}
	for _, first := range answers {
		for _, second := range answers {
			got := make([]Decision, 3)
			n, ok := decodeBatch([]byte(`{"results":[`+first+`, `+second+`,`+first+`]}`), func(i int) *Decision { return &got[i] })
			if !ok || n != 3 {
				t.Fatalf("%s and %s are not read", first, second)
			}
			for i, text := range []string{first, second, first} {
				want, ok := decodeDecision([]byte(text), got[i].Status)
				if !ok || !reflect.DeepEqual(got[i], want) {
					t.Errorf("behind %s\n%s is read as\n%+v, alone as\n%+v", first, text, got[i], want)
				}
			}
		}
	}
	for _, broken := range []string{
		strings.Replace(usual, `"limit":50,`, `"limit":50 `, 1), strings.Replace(usual, `"remaining":49,`, `}`, 1),
		strings.Replace(usual, `"remaining":49,"reset_after_ms":100,"degraded":false,"tiers"`, ``, 1), usual[:len(usual)-1] + `,}`,
	} {
		if _, ok := decodeBatch([]byte(`{"results":[`+usual+`,`+broken+`]}`), func(int) *Decision { return new(Decision) }); ok {
			t.Errorf("%s is read", broken)
		}
	}
}
