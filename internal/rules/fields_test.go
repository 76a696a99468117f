package rules

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEveryFieldOfARuleIsInItsFields(t *testing.T) {
	t.Parallel()
	// Identity, consequences of a write, and fields of one kind of write.
	others := strings.Fields("ID TenantID Name Pattern Plan CandidateFor ExpiresIn Version InForceSince CreatedAt " +
		"UpdatedAt Revision Removed Unknown")
	values := map[string]any{
		"Window":         Window{Calendar: CalendarMonth, Zone: "Europe/Berlin", StartDay: 3},
		"RefillInterval": 90 * time.Second, "MaxHold": time.Hour, "NotifyAt": []int{80, 100},
		"Adapt":     Adapt{Backend: "search", FloorPercent: 20, P99: 300 * time.Millisecond, ErrorPercent: 0.5},
		"ExpiresAt": time.Date(2027, 1, 31, 0, 0, 0, 1000, time.UTC),
	}
	for i := range reflect.TypeFor[Rule]().NumField() {
		name := reflect.TypeFor[Rule]().Field(i).Name
		if slices.Contains(others, name) {
			continue
		}
		rule, standard := Standard(), Standard()
		field := reflect.ValueOf(&rule).Elem().Field(i)
		switch value, ok := values[name]; {
		case ok:
			field.Set(reflect.ValueOf(value))
		case field.Kind() == reflect.String:
			field.SetString("x")
		case field.Kind() == reflect.Bool:
			field.SetBool(!field.Bool())
		case field.CanInt():
			field.SetInt(7)
		case field.CanFloat():
			field.SetFloat(0.1)
		}
		if rule.HasSameFields(&standard) {
			t.Errorf("a rule with another %s has the same fields", name)
		}
		fields := rule.Fields()
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		read := Standard()
		if wrong := read.Set(text); len(wrong) > 0 || !reflect.DeepEqual(read, rule) {
			t.Errorf("with another %s it is written as %s and read as\n%+v, %v; was\n%+v", name, text, read, wrong,
				rule)
		}
		chosen := map[string]any{}
		for name, value := range fields.Chosen() {
			chosen[name] = value
		}
		if text, err = json.Marshal(chosen); err != nil {
			t.Fatal(err)
		}
		read = Standard()
		if wrong := read.Set(text); len(wrong) > 0 || !reflect.DeepEqual(read, rule) {
			t.Errorf("what is chosen of it is %s and read as\n%+v, %v; was\n%+v", text, read, wrong, rule)
		}
	}
}

func TestAPatchSaysWhatALimitCanNoLongerHave(t *testing.T) {
	t.Parallel()
	quota := Standard()
	quota.Algorithm, quota.Burst, quota.NotifyAt = FixedWindow, 5, []int{80}
	quota.Window = Window{Calendar: CalendarMonth, Zone: "Europe/Berlin", StartDay: 3}
	pace := Standard()
	pace.RatePerSecond, pace.Burst, pace.RefillInterval = 1, 5, time.Second
	pace.Adapt = Adapt{Backend: "search", FloorPercent: 20, P99: time.Second}
	for name, test := range map[string]struct {
		from    Rule
		patch   string
		mustSay []string // the fields that the patch lacks
		whole   string   // with them
	}{
		"nothing":                       {quota, `{}`, nil, `{}`},
		"a window of the same calendar": {quota, `{"window": "month"}`, nil, `{}`},
		"another unit keeps the zone": {
			quota, `{"window": "day"}`, []string{"window_start_day"}, `{"window": "day", "window_start_day": null}`,
		},
		"a length has no zone": {
			quota, `{"window": "60s"}`,
			[]string{"window_zone", "window_start_day"},
			`{"window": "1m", "window_zone": null, "window_start_day": null}`,
		},
		"a zone that is given too": {
			quota, `{"window": "week", "window_zone": "UTC", "window_start_day": 2}`, nil,
			`{"window": "week", "window_zone": "UTC", "window_start_day": 2}`,
		},
		"another algorithm": {
			quota, `{"algorithm": "leaky_bucket", "rate_per_second": 2, "notify_at": []}`,
			[]string{"window", "window_zone", "window_start_day"},
			`{"algorithm": "leaky_bucket", "rate_per_second": 2, "window": null, "window_zone": null,
				"window_start_day": null, "notify_at": []}`,
		},
		"a queue keeps how it adapts": {
			pace, `{"algorithm": "leaky_bucket"}`,
			[]string{"refill_interval"},
			`{"algorithm": "leaky_bucket", "refill_interval": null}`,
		},
		"a block": {
			pace, `{"action": "block", "rate": null}`,
			[]string{"burst_capacity", "refill_interval", "adapt"},
			`{"action": "block", "rate_per_second": 0, "burst_capacity": 0, "refill_interval": null, "adapt": null}`,
		},
		"another target replaces both": {
			pace, `{"adapt": {"backend": "search", "floor_percent": 20, "error_percent": 1}}`, nil,
			`{"adapt": {"backend": "search", "floor_percent": 20, "p99_ms": null, "error_percent": 1}}`,
		},
		"other names": {pace, `{"key_pattern": "global", "rule_id": 7}`, nil, `{}`},
	} {
		patched, said, want := test.from, test.from, test.from
		var missing []string
		for _, wrong := range patched.Patch([]byte(test.patch)) {
			missing = append(missing, wrong.Field)
		}
		if !slices.Equal(missing, test.mustSay) {
			t.Errorf("%s: it must say %v, want %v", name, missing, test.mustSay)
		}
		if wrong := said.Patch([]byte(test.whole)); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
		if wrong := want.Set([]byte(test.whole)); len(wrong) > 0 {
			t.Fatal(wrong)
		}
		if !reflect.DeepEqual(said, want) || missing == nil && !reflect.DeepEqual(patched, want) {
			t.Errorf("%s: got\n%+v and\n%+v, want\n%+v", name, patched, said, want)
		}
	}
}

func TestValuesThatCannotBeReadAreToldByName(t *testing.T) {
	t.Parallel()
	for patch, want := range map[string]string{
		`{"burst_capacity": 1.5, "window_start_day": "1"}`: "burst_capacity: must be a whole number; " +
			"window_start_day: must be a whole number",
		`{"expires_at": "2027-02-30T00:00:00Z"}`:        "expires_at: must be a time such as 2027-01-31T00:00:00Z",
		`{"expires_at": "0001-01-01T00:00:00Z"}`:        "expires_at: must be in the future, or null for never",
		`{"expires_at": null, "expires_in_seconds": 5}`: "expires_in_seconds: must be left out beside expires_at",
		`{"refill_interval": "soon"}`: `refill_interval: must be a duration such as 30s, 5m or 24h, at most 8784h, ` +
			`got "soon"`,
		`{"lease": "sometimes"}`: `lease: must be auto or never, got "sometimes"`,
		`[]`:                     "change: must be a JSON object",
	} {
		rule := Standard()
		if wrong := rule.Patch([]byte(patch)); wrong.Error() != want {
			t.Errorf("%s: %s, want %s", patch, wrong, want)
		}
	}
}
