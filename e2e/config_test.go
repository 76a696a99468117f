package e2e_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestOptionsThatAreWrongRefuseToStart(t *testing.T) {
	t.Parallel()
	const database = "SLUICE_DATABASE_URL=postgres://127.0.0.1:1/sluice"
	tests := map[string]struct {
		env     []string
		command string
		want    []string // in the message
	}{
		"an unknown flag": {
			[]string{database},
			"api --check-adr :0",
			[]string{"--check-adr", "--check-addr"},
		},
		"another command's flag": {
			[]string{database},
			"admin export --tenant a --dry-run",
			[]string{"--dry-run", "admin apply"},
		},
		"an unknown variable": {
			[]string{database, "SLUICE_REDIS_ULR=redis://h"},
			"api",
			[]string{"SLUICE_REDIS_ULR", "SLUICE_REDIS_URL"},
		},
		"a bad duration in a flag": {
			[]string{database},
			"api --store-budget 50",
			[]string{"--store-budget", `"50"`},
		},
		"a bad duration in a variable": {
			[]string{database, "SLUICE_POLL_INTERVAL=often"},
			"api",
			[]string{"SLUICE_POLL_INTERVAL", `"often"`},
		},
		"a bad address": {
			[]string{database},
			"api --check-addr 8080",
			[]string{"--check-addr", `"8080"`},
		},
		"a bad database URL":       {nil, "api --database-url mysql://h/d", []string{"--database-url"}},
		"a bad Redis URL":          {[]string{database}, "api --redis-url http://h", []string{"--redis-url"}},
		"no database":              {nil, "api", []string{"--database-url", "SLUICE_DATABASE_URL"}},
		"no file":                  {[]string{database}, "admin apply --tenant acme", []string{"--file"}},
		"a flag without its value": {[]string{database}, "api --check-addr", []string{"--check-addr"}},
		"a flag given twice": {
			[]string{database},
			"api --log-level info --log-level warn",
			[]string{"--log-level"},
		},
		"two listeners at one address": {
			[]string{database},
			"api --check-addr :7 --metrics-addr 127.0.0.1:7",
			[]string{"--check-addr", "--metrics-addr"},
		},
		"a re-read before the poll": {
			[]string{database},
			"api --poll-interval 1m --reread-interval 1s",
			[]string{"--poll-interval", "--reread-interval"},
		},
		"no time for a check to finish": {
			[]string{database, "SLUICE_STORE_BUDGET=1s"},
			"api --shutdown-timeout 500ms",
			[]string{"SLUICE_STORE_BUDGET", "--shutdown-timeout"},
		},
		"an unknown command": {[]string{database}, "admin aply", []string{"aply", "apply"}},
		"no command":         {[]string{database}, "admin", []string{"migrate"}},
		"several at once": {
			[]string{"SLUICE_LOG_LEVEL=loud"},
			"api --store-budget never",
			[]string{"SLUICE_LOG_LEVEL", "--store-budget", "--database-url"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(test.command)
			r := run(t, test.env, words[0], words[1:]...)
			if r.status != 2 || r.stdout != "" {
				t.Errorf("status %d and %q on standard output, want 2 and nothing", r.status, r.stdout)
			}
			for _, want := range test.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("the message does not name %s:\n%s", want, r.stderr)
				}
			}
		})
	}
}

func TestSecretsAreNeverLogged(t *testing.T) {
	t.Parallel()
	const secret = "hunter2secret"

	t.Run("by commands that fail", func(t *testing.T) {
		t.Parallel()
		own, err := url.Parse(devdbtest.Postgres(t))
		if err != nil {
			t.Fatal(err)
		}
		databases := map[string]string{
			"a wrong password": fmt.Sprintf("postgres://%s:%s@%s%s?sslmode=disable", own.User.Username(),
				secret, own.Host, own.Path),
			"a server that is away":     "postgres://sluice:" + secret + "@127.0.0.1:1/sluice",
			"a host that has no name":   "postgres://sluice:" + secret + "@[::/sluice",
			"a port that is no number":  "postgres://sluice:" + secret + "@localhost:port/sluice",
			"a password as a parameter": "postgres://127.0.0.1:1/sluice?password=" + secret,
			"an escape that is broken":  "postgres://sluice:" + secret + "%zz@127.0.0.1:1/sluice",
		}
		for name, database := range databases {
			for _, args := range [][]string{{"migrate"}, {"export", "--tenant", "acme"}} {
				r := run(t, []string{"SLUICE_DATABASE_URL=" + database, "SLUICE_LOG_LEVEL=debug"}, "admin", args...)
				if r.status == 0 || r.stderr == "" || strings.Contains(r.stdout+r.stderr, secret) {
					t.Errorf("%s, admin %s: status %d and\n%s", name, args[0], r.status, r.stderr)
				}
			}
		}
	})

	t.Run("by a process that serves", func(t *testing.T) {
		t.Parallel()
		tn := newTenant(t, `rules: []`)
		a := tn.startAPI(t, "redis://:"+secret+"@127.0.0.1:1/0", "--log-level=debug")
		a.check(t, `{}`)
		wrong := *a
		wrong.key = "slk_0123_" + secret
		if _, err := wrong.try(`{"user_id":"` + secret + `"}`); err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, "the log to tell that Redis is away", func() bool {
			return strings.Contains(a.stderr.String(), "127.0.0.1:1:")
		})
		a.stop(t)
		database, err := url.Parse(tn.database)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := database.User.Password()
		_, keySecret, _ := strings.Cut(strings.TrimPrefix(tn.key, "slk_"), "_")
		for what, hidden := range map[string]string{
			"database's password": password, "key": keySecret,
			"Redis's password": secret,
		} {
			if hidden == "" || strings.Contains(a.stdout.String()+a.stderr.String(), hidden) {
				t.Errorf("the %s %q is in the log:\n%s", what, hidden, a.stderr.String())
			}
		}
	})
}
