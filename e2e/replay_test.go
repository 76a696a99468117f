package e2e_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func (tn tenant) record(t *testing.T) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), tn.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(t.Context()) }() // its change is committed
	if _, err := connection.Exec(t.Context(), "UPDATE tenant SET record_days = 7"); err != nil {
		t.Fatal(err)
	}
}

var figures = regexp.MustCompile(`(?m)^all +(\d+) +(\d+) +(\d+) +(\d+)$`)

func TestAReplaySaysWhatWasReallyDecided(t *testing.T) {
	t.Parallel()
	limit := func(burst string) string {
		return "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/day, burst_capacity: " + burst + "}\n"
	}
	tn := newTenant(t, limit("3"))
	tn.record(t)
	env := []string{"SLUICE_DATABASE_URL=" + tn.database}
	replay := func(file string, options ...string) result {
		t.Helper()
		return run(t, env, "admin", append([]string{"replay", "--tenant", tn.slug, "-f", file}, options...)...)
	}
	same, tight := writeRules(t, limit("3")), writeRules(t, limit("2"))
	if r := replay(same); r.status != 1 || r.stdout != "" ||
		!strings.Contains(r.stderr, "no checks of this time were recorded") {
		t.Errorf("before any check: status %d, %q and %q", r.status, r.stdout, r.stderr)
	}

	a := tn.startAPI(t, "")
	denied := 0
	for _, body := range []string{`{"user_id":"43"}`, `{"user_id":"43"}`} {
		a.want(t, body, http.StatusOK)
	}
	for range 8 {
		if !a.check(t, `{"user_id":"42"}`).Allowed {
			denied++
		}
	}
	a.stop(t) // so that it writes the checks that it recorded
	if denied != 5 {
		t.Fatalf("%d of 8 checks were denied, want 5", denied)
	}

	for name, test := range map[string]struct{ file, figures string }{
		"the rules in force": {same, "5 0 0 5"},
		"a lower limit":      {tight, "5 1 0 6"},
		"a higher limit":     {writeRules(t, limit("7")), "5 0 4 1"},
	} {
		r := replay(test.file)
		found := figures.FindStringSubmatch(r.stdout)
		if r.status != 0 || found == nil || strings.Join(found[1:], " ") != test.figures {
			t.Errorf("%s: status %d, want the figures %s: %s%s", name, r.status, test.figures, r.stdout, r.stderr)
		}
		if !strings.Contains(r.stdout, ": 10 checks") ||
			!strings.Contains(r.stdout, "100.00 % are decided by the rules in force as they were.") {
			t.Errorf("%s: the replay says:\n%s", name, r.stdout)
		}
	}

	for name, test := range map[string]struct {
		file    string
		options []string
		status  int
		says    string
	}{
		"a condition that is met": {
			tight,
			[]string{"--fail-if", "newly_denied > 0"},
			3,
			"the condition is met: newly_denied > 0",
		},
		"one by a percentage": {tight, []string{"--fail-if", "newly_denied >= 10%"}, 3, "the condition is met"},
		"one of two": {
			tight,
			[]string{"--fail-if", "denied_now > 100, newly_denied >= 1"},
			3,
			"newly_denied >= 1",
		},
		"a condition that is not met": {tight, []string{"--fail-if", "newly_denied > 10%"}, 0, ""},
		"a condition that is none":    {tight, []string{"--fail-if", "new > 1"}, 2, "--fail-if"},
		"a time that is none":         {tight, []string{"--from", "yesterday"}, 2, "neither a time such as"},
		"an end before its start":     {tight, []string{"--from", "1h", "--to", "2h"}, 2, "--from and --to"},
		"too long a time":             {tight, []string{"--from", "800h"}, 2, "at most 30 days"},
		"a time without checks": {
			tight,
			[]string{"--from", "3h", "--to", "2h"},
			1,
			"no checks of this time were recorded",
		},
		"a file that is not there": {"/nowhere.yaml", nil, 1, "/nowhere.yaml"},
		"a faulty file": {
			writeRules(t, "rules:\n  - {key_pattern: \"user:{user_id}\"}\n"), nil, 1,
			"rules.yaml:2",
		},
	} {
		r := replay(test.file, test.options...)
		if r.status != test.status || !strings.Contains(r.stderr, test.says) || test.status != 0 && test.status != 3 &&
			r.stdout != "" {
			t.Errorf("%s: status %d, want %d and %q: %s%s", name, r.status, test.status, test.says, r.stdout, r.stderr)
		}
		if (test.status == 0 || test.status == 3) && !figures.MatchString(r.stdout) {
			t.Errorf("%s: it prints no figures: %s", name, r.stdout)
		}
	}
}
