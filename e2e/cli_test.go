package e2e_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestADatabaseThatIsNotMigratedIsRefused(t *testing.T) {
	t.Parallel()
	database := devdbtest.EmptyPostgres(t)
	env := []string{
		"SLUICE_DATABASE_URL=" + database, "SLUICE_CHECK_ADDR=127.0.0.1:0",
		"SLUICE_METRICS_ADDR=127.0.0.1:0",
	}
	commands := [][]string{
		{"api"},
		{"admin", "create-tenant", "--slug", "acme", "--name", "Acme"},
		{"admin", "create-admin", "--email", "ada@example.com"},
		{"admin", "export", "--tenant", "acme"},
	}
	for _, command := range commands {
		r := run(t, env, command[0], command[1:]...)
		if r.status != 1 || r.stdout != "" || !strings.Contains(r.stderr, "`admin migrate`") {
			t.Errorf("%v: status %d, %q and %q; want 1 and words about `admin migrate`", command, r.status, r.stdout,
				r.stderr)
		}
	}
	for range 2 { // the second finds nothing to do
		if printed := admin(t, database, "migrate"); printed != "" {
			t.Errorf("migrate printed %q, want nothing", printed)
		}
	}
	refused := run(t, env, "admin", "migrate", "--grant-to", "nobody-there")
	if refused.status != 1 || !strings.Contains(refused.stderr, "there is no such role") {
		t.Errorf("migrate --grant-to: status %d and %q", refused.status, refused.stderr)
	}
	tenant{database: database}.startAPI(t, "")
}

func TestSetupCommandsPrintJustTheirResult(t *testing.T) {
	t.Parallel()
	database := devdbtest.Postgres(t)
	if printed := admin(t, database, "create-tenant", "--slug", "acme", "--name", "Acme", "--default-plan",
		"free"); printed != "acme\n" {
		t.Errorf("create-tenant printed %q, want the slug alone", printed)
	}
	if exported := admin(t, database, "export", "--tenant", "acme"); !strings.Contains(exported, "name: free") {
		t.Errorf("the default plan was not created:\n%s", exported)
	}
	key := admin(t, database, "create-key", "--tenant", "acme", "--name", "ci")
	if !regexp.MustCompile(`^slk_[0-9a-f]+_[0-9a-f]+\n$`).MatchString(key) {
		t.Fatalf("create-key printed %q, want a key alone", key)
	}

	a := tenant{database, "acme", strings.TrimSpace(key)}.startAPI(t, "")
	if got := a.want(t, `{}`, http.StatusOK); *got.Plan != "free" {
		t.Errorf("the plan of a check is %s, want the default", *got.Plan)
	}
	a.key = strings.TrimSpace(key)[:len(a.key)-1] + "g" // no hexadecimal digit, so certainly wrong
	if got, err := a.try(`{}`); err != nil || got.status != http.StatusUnauthorized {
		t.Errorf("another secret: %d (%v), want 401", got.status, err)
	}

	env := []string{"SLUICE_DATABASE_URL=" + database}
	tests := map[string]struct {
		args []string
		want string
	}{
		"a slug that is taken":      {[]string{"create-tenant", "--slug", "acme", "--name", "Other"}, "exists already"},
		"a slug that is none":       {[]string{"create-tenant", "--slug", "Acme!", "--name", "Acme"}, "slug"},
		"a tenant that is not here": {[]string{"create-key", "--tenant", "umbrella", "--name", "ci"}, `"umbrella"`},
		"a file that is not here":   {[]string{"apply", "--tenant", "acme", "-f", "nowhere.yaml"}, "nowhere.yaml"},
	}
	for name, test := range tests {
		r := run(t, env, "admin", test.args...)
		if r.status != 1 || r.stdout != "" || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: status %d, %q and %q; want 1 and words about %s", name, r.status, r.stdout, r.stderr,
				test.want)
		}
	}
}

func TestApplyPrintsWhatItChangesAndNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	const first = `
plans: [{name: free}]
rules:
  - {key_pattern: "user:{user_id}", plan: free, name: daily, rate: 1000/day, burst_capacity: 50}
  - {key_pattern: global, rate: 10/second, burst_capacity: 50}
`
	second := strings.Replace(first, "rate: 10/second", "rate: 20/second", 1)
	third, _, _ := strings.Cut(second, "  - {key_pattern: global")
	tn := newTenant(t, `{plans: [], rules: []}`)
	steps := []struct {
		name, rules string
		flags       []string
		want        string
	}{
		{
			"all of it is new", first, nil,
			"+ plan free\n+ rule global: 10 per second, bursts to 50\n+ rule user:{user_id} [free] daily: 1,000 per " +
				"day, bursts to 50\n",
		},
		{"a rate", second, nil, "~ rule global: rate 10 per second → 20 per second\n"},
		{"a rule that is left out", third, nil, "= rule global: kept, though not in the file\n"},
		{"a rule that is pruned", third, []string{"--prune"}, "- rule global\n"},
	}
	export := func() string { return admin(t, tn.database, "export", "--tenant", tn.slug) }
	for _, step := range steps {
		before := export()
		if got := tn.apply(t, step.rules, append(step.flags, "--dry-run")...); got != step.want {
			t.Errorf("%s, dry: printed\n%s\nwant\n%s", step.name, got, step.want)
		}
		if now := export(); now != before {
			t.Errorf("%s: a dry run changed\n%s\nto\n%s", step.name, before, now)
		}
		if got := tn.apply(t, step.rules, step.flags...); got != step.want {
			t.Errorf("%s: printed\n%s\nwant\n%s", step.name, got, step.want)
		}
		changed := !strings.HasPrefix(step.want, "=")
		after := export()
		if (after != before) != changed {
			t.Errorf("%s: the rules were\n%s\nand are\n%s", step.name, before, after)
		}
		again := tn.apply(t, step.rules, step.flags...)
		if changed && again != "" || export() != after {
			t.Errorf("%s: applied again it printed %q, want nothing to change", step.name, again)
		}
	}
}

func TestAFaultyFileNamesLineAndFieldAndChangesNothing(t *testing.T) {
	t.Parallel()
	const good = `plans:
  - name: free
rules:
  - key_pattern: "user:{user_id}"
    plan: free
    rate: 10/second
    burst_capacity: 50
  - key_pattern: ip:203.0.113.0/24
    rate: 1/day
    burst_capacity: 5
`
	tn := newTenant(t, good)
	before := admin(t, tn.database, "export", "--tenant", tn.slug)
	tests := map[string]struct{ from, to, line, field string }{
		"a rate of 0":            {"10/second", "0/second", "6", "rules[0].rate"},
		"a burst of 0":           {"burst_capacity: 50", "burst_capacity: 0", "7", "rules[0].burst_capacity"},
		"an unknown plan":        {"plan: free", "plan: gold", "5", "rules[0].plan"},
		"host bits":              {"203.0.113.0/24", "203.0.113.9/24", "8", "rules[1].key_pattern"},
		"an unknown placeholder": {"user:{user_id}", "user:{id}", "4", "rules[0].key_pattern"},
		"over a year to fill":    {"burst_capacity: 5\n", "burst_capacity: 367\n", "10", "rules[1].burst_capacity"},
		"a rule that is there": {
			"ip:203.0.113.0/24", "\"user:{user_id}\"\n    plan: free", "8",
			"rules[1].key_pattern",
		},
		"a field that is not":      {"burst_capacity: 50", "burst: 50", "7", "rules[0].burst"},
		"an unknown unit":          {"1/day", "1/week", "9", "rules[1].rate"},
		"text that is not YAML":    {"plan: free", "plan: [free", "", ""},
		"an action with a limit":   {"rate: 1/day", "action: block", "10", "rules[1].burst_capacity"},
		"a number for the pattern": {"\"user:{user_id}\"", "42", "4", "rules[0].key_pattern"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(good, test.from) {
				t.Fatalf("%q is not in the file", test.from)
			}
			file := writeRules(t, strings.Replace(good, test.from, test.to, 1))
			for _, flags := range [][]string{nil, {"--dry-run"}, {"--prune"}} {
				args := append([]string{"apply", "--tenant", tn.slug, "-f", file}, flags...)
				r := run(t, []string{"SLUICE_DATABASE_URL=" + tn.database}, "admin", args...)
				want := file + ":" + test.line
				if test.field != "" {
					want += ": " + test.field + ": "
				}
				if r.status != 1 || r.stdout != "" || !strings.Contains(r.stderr, want) {
					t.Errorf("status %d, %q and %q; want 1 and %s", r.status, r.stdout, r.stderr, want)
				}
			}
			if now := admin(t, tn.database, "export", "--tenant", tn.slug); now != before {
				t.Errorf("the rules were changed to\n%s", now)
			}
		})
	}
}

func TestAnExportAppliedElsewhereIsTheSameExport(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, `
plans: [{name: free, description: "for a try: #1"}, {name: "42"}]
rules:
  - {key_pattern: "user:{user_id}", plan: free, rate: 10/second, burst_capacity: 50}
  - {key_pattern: "user:{user_id}", plan: free, name: daily, rate: 1000/day, burst_capacity: 50, failure_mode: closed}
  - {key_pattern: "user:{user_id}", plan: "42", rate_per_second: 0.012345678901, rate_unit: hour, burst_capacity: 3, mode: shadow}
  - {key_pattern: "user:{user_id}:attr.model:gpt-x", rate: 1/minute, burst_capacity: 1, is_active: false, description: "two\nlines"}
  - {key_pattern: "endpoint:POST /v1/charges", rate: 5/second, burst_capacity: 5, failure_mode: open}
  - {key_pattern: "endpoint:/internal/*", action: block}
  - {key_pattern: 'ip:"2001:db8::/32"', action: bypass}
  - {key_pattern: global, rate: 50000/second, burst_capacity: 100000}
overrides:
  - rule: {key_pattern: "user:{user_id}", plan: free, name: daily}
    user_id: "a: \"b\""
    rate: 100/second
    burst_capacity: 500
    reason: migration week
    expires_at: 2127-01-31T00:00:00.000001Z
`)
	exported := admin(t, tn.database, "export", "--tenant", tn.slug)
	admin(t, tn.database, "create-tenant", "--slug", "other", "--name", "Other")
	other := tenant{database: tn.database, slug: "other"}
	if printed := other.apply(t, exported); strings.Count(printed, "\n+") != 10 {
		t.Errorf("apply printed\n%s\nwant 2 plans, 8 rules and an override", printed)
	}
	if again := admin(t, other.database, "export", "--tenant", other.slug); again != exported {
		t.Errorf("the other tenant's export is\n%s\nwant\n%s", again, exported)
	}
	if printed := tn.apply(t, exported, "--prune"); printed != "" {
		t.Errorf("an export applied to its own tenant changes\n%s", printed)
	}
}
