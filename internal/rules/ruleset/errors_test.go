package ruleset

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestErrorsNameTheirLineAndField(t *testing.T) {
	t.Parallel()
	const (
		rule     = "rules:\n- key_pattern: user:{user_id}\n  rate: 1/second\n  burst_capacity: 1\n"
		override = "overrides:\n- rule: {key_pattern: \"user:{user_id}\"}\n  user_id: a\n  rate: 1/second\n  " +
			"burst_capacity: 1\n  reason: r\n"
	)
	change := func(text, from, to string) string {
		if !strings.Contains(text, from) {
			t.Fatalf("%q is not in %q", from, text)
		}
		return strings.Replace(text, from, to, 1)
	}
	tests := map[string]struct{ text, want string }{
		"an empty file": {"# nothing\n", "f: the file must have plans, rules or overrides; it is empty"},
		"text that is no YAML": {
			"plans:\n- name: [\n",
			"f:2: the file must be YAML: did not find expected node content",
		},
		"bytes that are not UTF-8": {
			"plans:\n- name: \xff\n",
			"f:2: the line must be valid UTF-8 without control characters",
		},
		"a control character": {
			"plans:\n\n- name: \x1b\n",
			"f:3: the line must be valid UTF-8 without control characters",
		},
		"a second document": {
			"{}\n---\nplans: []\n",
			"f:2: the file must be one document: here begins a second",
		},
		"an anchor": {
			"plans:\n- name: &a free\n",
			"f:2: plans[0].name: must be written out: anchors and aliases are not read",
		},
		"an alias to nothing":   {"plans: *a\n", "f: the file must be YAML: unknown anchor 'a' referenced"},
		"a file that is a list": {"- free\n", "f:1: must be a mapping with fields such as plans, got a list"},
		"a file that is a word": {
			"free\n",
			`f:1: must be a mapping with fields such as plans, got the str "free"`,
		},
		"an unknown list": {
			"plans: []\ntenants: []\n",
			"f:2: tenants: is no field here; the fields are plans, rules, overrides, gateways",
		},
		"a key that is no name": {
			"? [a]\n: b\n",
			"f:1: is no field here; the fields are plans, rules, overrides, gateways",
		},
		"a list given twice": {
			"plans: []\nrules: []\nplans: []\n",
			"f:3: plans: is given a second time, after line 1",
		},
		"a list that is nothing": {
			"plans:\nrules: []\n",
			"f:1: plans: must be a list, which is [] if it is empty, got nothing",
		},
		"a list that is a mapping": {
			"plans: {name: free}\n",
			"f:1: plans: must be a list, which is [] if it is empty, got a mapping",
		},
		"a plan that is a word": {
			"plans:\n- free\n",
			`f:2: plans[0]: must be a mapping with fields such as name, got the str "free"`,
		},
		"a plan without a name": {"plans:\n- description: x\n", "f:2: plans[0].name: is missing"},
		"a plan with an odd name": {
			"plans:\n- name: a b\n",
			`f:2: plans[0].name: must be 1 to 64 letters, digits, '_', '.' and '-', got "a b"`,
		},
		"a plan given twice": {
			"plans:\n- name: a\n- name: b\n- name: a\n",
			"f:4: plans[2].name: names the same as plans[0] on line 2 does",
		},
		"a scope": {
			rule + "  scope: user\n",
			"f:5: rules[0].scope: is no field here; the fields are " + strings.Join(ruleFieldNames, ", "),
		},
		"a field given twice": {
			rule + "  rate: 2/second\n",
			"f:5: rules[0].rate: is given a second time, after line 3",
		},
		"no pattern": {
			"rules:\n- rate: 1/second\n  burst_capacity: 1\n",
			"f:2: rules[0].key_pattern: is missing",
		},
		"a wrong pattern": {
			change(rule, "user:{user_id}", "user:{id}"),
			"f:2: rules[0].key_pattern: at byte 5: unknown placeholder {id}: user takes {user_id}, or \"{id}\" in " +
				"double quotes for that very text",
		},
		"a rule given twice": {
			rule + "- key_pattern: user:{user_id}\n  rate: 2/day\n  burst_capacity: 2\n",
			"f:5: rules[1].key_pattern: names the same as rules[0] on line 2 does",
		},
		"a number for a name": {
			rule + "  name: 2024\n",
			`f:5: rules[0].name: must be text, in quotes if it could be taken for something else, got the int "2024"`,
		},
		"a name of nothing": {
			rule + "  name:\n",
			"f:5: rules[0].name: must be text, in quotes if it could be taken for something else, got nothing",
		},
		"a list for a name": {
			rule + "  name: [a]\n",
			"f:5: rules[0].name: must be text, in quotes if it could be taken for something else, got a list",
		},
		"a null plan": {
			rule + "  plan: null\n",
			"f:5: rules[0].plan: must be text, in quotes if it could be taken for something else, got nothing",
		},
		"an empty plan": {
			rule + "  plan: ''\n",
			"f:5: rules[0].plan: must not be empty: leave it out for all plans",
		},
		"an unknown plan": {
			rule + "  plan: gold\n",
			`f:5: rules[0].plan: must be a plan of the tenant, and "gold" is none`,
		},
		"an unknown mode": {
			rule + "  mode: audit\n",
			`f:5: rules[0].mode: must be enforce or shadow, got "audit"`,
		},
		"no lease": {
			rule + "  lease: sometimes\n",
			"f:5: rules[0].lease: must be auto or never, got \"sometimes\"",
		},
		"an empty failure mode": {
			rule + "  failure_mode: ''\n",
			"f:5: rules[0].failure_mode: must not be empty: leave it out for the tenant's own",
		},
		"an unknown action": {
			rule + "  action: deny\n",
			`f:5: rules[0].action: must be limit or block or bypass, got "deny"`,
		},
		"a word for a truth value": {
			rule + "  is_active: yes please\n",
			`f:5: rules[0].is_active: must be true or false, got the str "yes please"`,
		},
		"a capital truth value": {
			rule + "  is_active: TRUE\n",
			"f:5: rules[0].is_active: must be true or false, got TRUE",
		},
		"no rate": {
			change(rule, "  rate: 1/second\n", ""),
			"f:2: rules[0].rate: is missing: write a rate such as 1000/day, or rate_per_second",
		},
		"a rate without a unit": {
			change(rule, "1/second", "10"),
			`f:3: rules[0].rate: must be a number per second, minute, hour or day, such as 1000/day, got the int "10"`,
		},
		"a rate per week": {
			change(rule, "1/second", "1/week"),
			`f:3: rules[0].rate: must be a number per second, minute, hour or day, such as 1000/day or 0.5/minute, got "1/week"`,
		},
		"a rate out of range": {
			change(rule, "1/second", "0/second"),
			"f:3: rules[0].rate: must be from 0.000001 to 1000000000 tokens per second, got 0",
		},
		"a rate given both ways": {
			rule + "  rate_per_second: 1\n",
			"f:5: rules[0].rate_per_second: cannot stand beside rate, which says it already",
		},
		"a unit beside a rate": {
			rule + "  rate_unit: day\n",
			"f:5: rules[0].rate_unit: cannot stand beside rate, which says it already",
		},
		"a rate that is infinite": {
			change(rule, "rate: 1/second", "rate_per_second: .inf"),
			"f:3: rules[0].rate_per_second: must be a decimal number, got .inf",
		},
		"a quoted rate per second": {
			change(rule, "rate: 1/second", "rate_per_second: '1'"),
			`f:3: rules[0].rate_per_second: must be a number, got the str "1"`,
		},
		"a rate per second of zero": {
			change(rule, "rate: 1/second", "rate_per_second: 0"),
			"f:3: rules[0].rate_per_second: must be from 0.000001 to 1000000000 tokens per second, got 0",
		},
		"no burst": {
			change(rule, "  burst_capacity: 1\n", ""),
			"f:2: rules[0].burst_capacity: is missing",
		},
		"a burst of zero": {
			change(rule, "capacity: 1", "capacity: 0"),
			"f:4: rules[0].burst_capacity: must be a whole number from 1 to 1000000000, got 0",
		},
		"a burst with decimals": {
			change(rule, "capacity: 1", "capacity: 1.5"),
			`f:4: rules[0].burst_capacity: must be a whole number from 1 to 1000000000, got the float "1.5"`,
		},
		"a burst in octal": {
			change(rule, "capacity: 1", "capacity: 010"),
			"f:4: rules[0].burst_capacity: must be a whole number from 1 to 1000000000, in digits alone, got 010",
		},
		"a burst that is too slow": {
			change(rule, "capacity: 1", "capacity: 31536001"),
			"f:4: rules[0].burst_capacity: must be at most 31536000 at this rate: a bucket of 31536001 would take " +
				"366 days to fill, and 365 is the most",
		},
		"a block with a limit": {
			rule + "  action: block\n",
			"f:3: rules[0].rate: must be 0 or left out: a block rule takes no tokens\nf:4: rules[0].burst_capacity: " +
				"must be 0 or left out: a block rule takes no tokens",
		},
		"an override without fields": {
			"overrides:\n- {}\n",
			"f:2: overrides[0].rule: is missing\nf:2: overrides[0].user_id: is missing\nf:2: overrides[0].reason: is " +
				"missing\nf:2: overrides[0].rate: is missing: write a rate such as 1000/day, or " +
				"rate_per_second\nf:2: overrides[0].burst_capacity: is missing",
		},
		"an override's rule by id": {
			change(override, `{key_pattern: "user:{user_id}"}`, "7"),
			`f:2: overrides[0].rule: must be a mapping with fields such as key_pattern, got the int "7"`,
		},
		"an override's odd pattern": {
			change(override, "{user_id}", "{id}"),
			"f:2: overrides[0].rule.key_pattern: at byte 5: unknown placeholder {id}: user takes {user_id}, or " +
				"\"{id}\" in double quotes for that very text",
		},
		"an override's unknown plan": {
			change(override, `"}`, `", plan: gold}`),
			`f:2: overrides[0].rule.plan: must be a plan of the tenant, and "gold" is none`,
		},
		"an override of one user": {
			change(override, "user:{user_id}", "user:42"),
			"f:2: overrides[0].rule: must be a rule with user:{user_id} in its pattern: the buckets of user:42 are " +
				"not one user's",
		},
		"an override of a block": {
			"rules: [{key_pattern: \"user:{user_id}\", action: block}]\n" + override,
			"f:3: overrides[0].rule: must be a rule that limits: a block rule has no limit to override",
		},
		"an override given twice": {
			override + strings.TrimPrefix(override, "overrides:\n"),
			"f:8: overrides[1].user_id: names the same as overrides[0] on line 2 does",
		},
		"a user that is a number": {
			change(override, "user_id: a", "user_id: 42"),
			`f:3: overrides[0].user_id: must be text, in quotes if it could be taken for something else, got the int "42"`,
		},
		"an expiry without a time": {
			override + "  expires_at: 2027-01-31\n",
			"f:7: overrides[0].expires_at: must be a time such as 2027-01-31T00:00:00Z, got 2027-01-31",
		},
		"an expiry that is too fine": {
			override + "  expires_at: 2027-01-31T00:00:00.0000001Z\n",
			"f:7: overrides[0].expires_at: must be no finer than a microsecond, got 2027-01-31T00:00:00.0000001Z",
		},
		"a window that is none": {
			rule + "  window: fortnight\n",
			`f:5: rules[0].window: must be day, week, month or a duration such as 30s, 5m or 24h, got "fortnight"`,
		},
		"a window in a number": {
			rule + "  window: 60\n",
			`f:5: rules[0].window: must be text, in quotes if it could be taken for something else, got the int "60"`,
		},
		"a window of a token bucket": {
			rule + "  window: 1m\n",
			"f:5: rules[0].window: must be left out: a token_bucket has no window",
		},
		"a rate of a window": {
			rule + "  algorithm: fixed_window\n  window: 1m\n",
			"f:3: rules[0].rate: must be 0 or left out: a fixed_window has a burst and no rate",
		},
		"no window": {
			change(rule, "rate: 1/second", "algorithm: sliding_window"),
			"f:2: rules[0].window: must be day, week, month or whole seconds up to 8784h, such as 30s, 5m or 24h",
		},
		"no time to hold": {
			change(rule, "rate: 1/second", "algorithm: concurrency"),
			"f:2: rules[0].max_hold: must be whole seconds from 1s to 24h, such as 30s, 5m or 1h",
		},
		"a day that is no number": {
			change(rule, "rate: 1/second",
				"algorithm: fixed_window\n  window: month\n  window_start_day: 1st"),
			`f:5: rules[0].window_start_day: must be a whole number in digits alone, got the str "1st"`,
		},
		"a zone that is none": {
			change(rule, "rate: 1/second",
				"algorithm: fixed_window\n  window: month\n  window_zone: Berlin"),
			`f:5: rules[0].window_zone: must be a time zone such as Europe/Berlin or UTC, got "Berlin"`,
		},
		"a step that is no duration": {
			rule + "  refill_interval: 10\n",
			`f:5: rules[0].refill_interval: must be text, in quotes if it could be taken for something else, got the int "10"`,
		},
		"a share that is a text": {
			change(rule, "rate: 1/second",
				"algorithm: fixed_window\n  window: month\n  notify_at: [80%]"),
			`f:5: rules[0].notify_at: must be a list of whole percents such as [80, 100], got the str "80%" in it`,
		},
		"a rate over a window's": {
			"rules: [{key_pattern: \"user:{user_id}\", algorithm: fixed_window, window: " +
				"1m, burst_capacity: 2}]\n" + override,
			"f:5: overrides[0].rate: must be 0 or left out: a fixed_window has a burst and no rate",
		},
		"errors of several rows": {
			"plans:\n- name: a b\nrules:\n- key_pattern: global\n  rate: x\n- {}\noverrides: no\n",
			"f:2: plans[0].name: must be 1 to 64 letters, digits, '_', '.' and '-', got \"a b\"\n" +
				"f:4: rules[0].burst_capacity: is missing\n" +
				"f:5: rules[0].rate: must be a number per second, minute, hour or day, such as 1000/day or " +
				"0.5/minute, got \"x\"\n" +
				"f:6: rules[1].key_pattern: is missing\n" +
				"f:6: rules[1].rate: is missing: write a rate such as 1000/day, or rate_per_second\n" +
				"f:6: rules[1].burst_capacity: is missing\n" +
				"f:7: overrides: must be a list, which is [] if it is empty, got the str \"no\"",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := Decode(strings.NewReader(test.text), "f", nil)
			if err == nil {
				t.Fatalf("read as %+v, want an error:\n%s", config, test.text)
			}
			if err.Error() != test.want {
				t.Errorf("errors of\n%s\n got %s\nwant %s", test.text, err, test.want)
			}
		})
	}
}

func TestErrorsReadWellWithoutAFileName(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]Error{
		"line 3: plans: is wrong": {Line: 3, Field: "plans", Message: "is wrong"},
		"the file is wrong":       {Message: "the file is wrong"},
	} {
		if got := err.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAFileAboveTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader("{} #"), endlessX{})
	_, err := Decode(endless, "f", nil)
	if want := "f: the file must be at most 10485760 bytes long"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

type endlessX struct{}

func (endlessX) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestAFileThatCannotBeReadIsNotCalledWrong(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	_, err := Decode(iotest.ErrReader(broken), "f", nil)
	if !errors.Is(err, broken) || errors.As(err, new(Errors)) {
		t.Errorf("got %v, want the reader's own error", err)
	}
}
