package sluice

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const usualDecision = `{"status":200,"allowed":true,"plan":"pro","reason":null,"limit":50,"remaining":49,` +
	`"reset_after_ms":100,"degraded":false,"later":[{"a":1}],"tiers":[{"rule_id":12,"name":"","scope":"user",` +
	`"key_pattern":"user:{user_id}","mode":"enforce","allowed":true,"limit":50,"remaining":49.5,` +
	`"retry_after_ms":0,"reset_after_ms":100}]}`

func TestADecisionIsReadWhole(t *testing.T) {
	t.Parallel()
	want := Decision{
		Allowed: true, Status: 200, Plan: "pro", Limit: 50, Remaining: 49, ResetAfter: 100 * time.Millisecond,
		Source: FromServer,
		Tiers: []Tier{{
			RuleID: 12, Scope: "user", KeyPattern: "user:{user_id}", Mode: "enforce", Allowed: true, Limit: 50,
			Remaining: 49.5, ResetAfter: 100 * time.Millisecond,
		}},
	}
	if got, ok := decodeDecision([]byte(usualDecision), 200); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("it is read as %+v", got)
	}
	denied := strings.Replace(usualDecision, `"status":200,"allowed":true`, `"status":429,"allowed":false`, 1)
	got, ok := decodeBatch([]byte(`{"results":[` + usualDecision + `, ` + denied + `],"later":1}`))
	if !ok || len(got) != 2 || !reflect.DeepEqual(got[0], want) || got[1].Allowed || got[1].Status != 429 {
		t.Errorf("the batch is read as %+v", got)
	}
}

func TestWhatIsNoDecisionIsRefused(t *testing.T) {
	t.Parallel()
	for _, change := range [][2]string{
		{`"limit":50,`, `"limit":50 `},
		{`"remaining":49,`, `}`},
		{`"allowed":true`, `"allowed":null`},
		{`"allowed":true,`, ``},
		{`"allowed":true`, `"allowed":false`},
		{`"status":200`, `"status":429`},
		{`"limit":50`, `"limit":"50"`},
		{`]}`, `],}`},
	} {
		broken := strings.Replace(usualDecision, change[0], change[1], 1)
		if _, ok := decodeBatch([]byte(`{"results":[` + usualDecision + `,` + broken + `]}`)); ok {
			t.Errorf("%s is read", broken)
		}
	}
	for _, text := range []string{``, `null`, `{}`, `{"results":null}`, `{"results":{}}`, `{"results":[null]}`} {
		if _, ok := decodeBatch([]byte(text)); ok {
			t.Errorf("the batch %s is read", text)
		}
		if _, ok := decodeDecision([]byte(text), 200); ok {
			t.Errorf("the decision %s is read", text)
		}
	}
}
