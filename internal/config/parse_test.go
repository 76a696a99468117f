package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

const database = "SLUICE_DATABASE_URL=postgres://sluice:hunter2@db.internal:5432/sluice"

func mustParse(t *testing.T, binary string, args []string, environ ...string) Config {
	t.Helper()
	c, err := Parse(binary, args, environ)
	if err != nil {
		t.Fatalf("Parse(%q, %q, %q): %v", binary, args, environ, err)
	}
	return c
}

func TestDefaultsAreThoseOfTheProduct(t *testing.T) {
	t.Parallel()
	api := mustParse(t, "api", nil, database)
	want := Config{
		Command:             API,
		DatabaseURL:         "postgres://sluice:hunter2@db.internal:5432/sluice",
		CheckAddr:           ":8080",
		MetricsAddr:         ":9090",
		StoreBudget:         50 * time.Millisecond,
		LocalBuckets:        1_000_000,
		CheckpointAbove:     time.Hour,
		Leases:              LeasesAuto,
		CheckMaxConnections: 16384,
		PollInterval:        time.Second,
		RereadInterval:      time.Minute,
		Recording:           true,
		FlushInterval:       time.Second,
		RecorderMemory:      64,
		TrafficMemory:       32,
		TrafficTenantBudget: 512,
		TrafficBudget:       8192,
		DetailsPerSecond:    3,
		ShutdownTimeout:     10 * time.Second,
		LogFormat:           "text",
	}
	if !reflect.DeepEqual(api, want) {
		t.Errorf("api:\n got %#v\nwant %#v", api, want)
	}
	dev := mustParse(t, "sluice", []string{"dev"})
	if dev.CheckAddr != "127.0.0.1:8080" || dev.AdminAddr != "127.0.0.1:8081" || dev.MetricsAddr != "127.0.0.1:9090" {
		t.Errorf("sluice dev listens on %q, %q, %q", dev.CheckAddr, dev.AdminAddr, dev.MetricsAddr)
	}
	allowing := mustParse(t, "sluice", []string{"dev", "--webhook-allow", "10.1.2.3/8, ::1"})
	if got := allowing.WebhookAllow; len(got) != 2 || got[0].String() != "10.0.0.0/8" || got[1].String() != "::1/128" {
		t.Errorf("alerts may be posted to %v", got)
	}
	behind := mustParse(t, "admin",
		[]string{"serve", "--database-url", "postgres://localhost/sluice", "--trusted-proxies", "10.1.2.3"})
	if got := behind.TrustedProxies; len(got) != 1 || got[0].String() != "10.1.2.3/32" {
		t.Errorf("X-Forwarded-For is believed from %v", got)
	}
	if dev.ViolationRetention != 30*24*time.Hour || dev.CountRetention != 13*30*24*time.Hour+6*24*time.Hour {
		t.Errorf("sluice dev keeps violations for %s and counts for %s", dev.ViolationRetention, dev.CountRetention)
	}
	if dev.DataDir != ".sluice" || dev.DatabaseURL != "" || dev.RedisURL != "" {
		t.Errorf("sluice dev has data in %q, database %q, redis %q", dev.DataDir, dev.DatabaseURL, dev.RedisURL)
	}
}

func TestWhereAValueComesFrom(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		env  string
		want time.Duration
	}{
		"nothing given leaves the default":             {nil, "", 50 * time.Millisecond},
		"an environment variable replaces the default": {nil, "SLUICE_STORE_BUDGET=20ms", 20 * time.Millisecond},
		"a flag wins over the environment": {
			[]string{"--store-budget=30ms"},
			"SLUICE_STORE_BUDGET=20ms", 30 * time.Millisecond,
		},
		"a flag wins over a bad value in the environment": {
			[]string{"--store-budget=30ms"},
			"SLUICE_STORE_BUDGET=x",
			30 * time.Millisecond,
		},
		"a flag takes its value from the next argument": {
			[]string{"--store-budget", "30ms"},
			"",
			30 * time.Millisecond,
		},
		"an empty variable is unset": {nil, "SLUICE_STORE_BUDGET=", 50 * time.Millisecond},
		"an empty flag brings the default back": {
			[]string{"--store-budget="},
			"SLUICE_STORE_BUDGET=20ms",
			50 * time.Millisecond,
		},
		"variables of other programs are none of business": {nil, "STORE_BUDGET=x", 50 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := mustParse(t, "api", test.args, database, test.env).StoreBudget; got != test.want {
				t.Errorf("StoreBudget = %s, want %s", got, test.want)
			}
		})
	}
}

func TestArgumentsOfOneShotCommands(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want Arguments
	}{
		"create-tenant": {
			"create-tenant --slug acme --name Acme",
			Arguments{Slug: "acme", Name: "Acme"},
		},
		"create-tenant with a plan": {
			"create-tenant --slug acme --name Acme --default-plan free",
			Arguments{Slug: "acme", Name: "Acme", DefaultPlan: "free"},
		},
		"create-key may check": {
			"create-key --tenant acme --name ci",
			Arguments{Tenant: "acme", Name: "ci", Permissions: []auth.Permission{auth.PermissionCheck}},
		},
		"create-key with permissions": {
			"create-key --tenant acme --name ci --permissions manage,check",
			Arguments{
				Tenant: "acme", Name: "ci",
				Permissions: []auth.Permission{auth.PermissionManage, auth.PermissionCheck},
			},
		},
		"set-enforcement": {
			"set-enforcement --tenant acme --enforcement shadow",
			Arguments{Tenant: "acme", Enforcement: "shadow"},
		},
		"apply": {
			"apply --tenant acme -f rules.yaml",
			Arguments{Tenant: "acme", Files: []string{"rules.yaml"}},
		},
		"apply from standard input": {"apply --tenant acme -f -", Arguments{Tenant: "acme", Files: []string{"-"}}},
		"apply in words": {
			"apply --tenant=acme --file=rules.yaml --prune --dry-run",
			Arguments{Tenant: "acme", Files: []string{"rules.yaml"}, DryRun: true, Prune: true},
		},
		"apply with the dry run first": {
			"apply --dry-run -f rules.yaml --tenant acme",
			Arguments{Tenant: "acme", Files: []string{"rules.yaml"}, DryRun: true},
		},
		"apply with the dry run taken off": {
			"apply --dry-run=false -f rules.yaml --tenant acme",
			Arguments{Tenant: "acme", Files: []string{"rules.yaml"}},
		},
		"import several": {
			"import-envoy --tenant acme -f a.yaml --file=b --skip-unsupported --record team --record=model",
			Arguments{
				Tenant: "acme", Files: []string{"a.yaml", "b"}, SkipUnsupported: true,
				Record: []string{"team", "model"},
			},
		},
		"export":  {"export --tenant acme", Arguments{Tenant: "acme"}},
		"migrate": {"migrate", Arguments{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustParse(t, "admin", strings.Fields(test.line), database)
			if !reflect.DeepEqual(c.Arguments, test.want) {
				t.Errorf("Arguments = %+v, want %+v", c.Arguments, test.want)
			}
			if want := "admin " + strings.Fields(test.line)[0]; string(c.Command) != want {
				t.Errorf("Command = %q, want %q", c.Command, want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string // binary and arguments
		env  []string
		want []string // the problems
	}{
		"an unknown flag, with the nearest known one": {
			"api --chek-addr :80", nil,
			[]string{"--chek-addr: api has no such option; did you mean --check-addr?"},
		},
		"an unknown flag that is near none": {
			"api --verbose", nil,
			[]string{"--verbose: api has no such option"},
		},
		"buckets in Redis without Redis": {
			"api",
			[]string{database, "SLUICE_BUCKETS=redis"},
			[]string{"SLUICE_BUCKETS redis needs a --redis-url or SLUICE_REDIS_URL"},
		},
		"buckets in an unknown store": {
			"api",
			[]string{database, "SLUICE_BUCKETS=sqlite"},
			[]string{`SLUICE_BUCKETS: "sqlite" is not one of redis, memory, postgres`},
		},
		"a flag with one dash": {
			"api -check-addr=:80", nil,
			[]string{"-check-addr: api has no such option; did you mean --check-addr?"},
		},
		"a flag of another command": {
			"admin migrate --check-addr :80", nil,
			[]string{"--check-addr is not an option of admin migrate, but of api and sluice dev"},
		},
		"a flag given twice": {
			"api --check-addr :80 --check-addr :81", nil,
			[]string{"--check-addr is given twice"},
		},
		"a flag without its value": {
			"api --check-addr --log-level info", nil,
			[]string{"--check-addr needs a value: --check-addr HOST:PORT"},
		},
		"an argument that is no flag": {
			"api serve", nil,
			[]string{`unexpected argument "serve"`},
		},
		"an unknown variable, with the nearest known one": {
			"api",
			[]string{"SLUICE_POLL_INTERVALL=1s"},
			[]string{"SLUICE_POLL_INTERVALL: there is no such option; did you mean SLUICE_POLL_INTERVAL?"},
		},
		"a port where an address belongs": {
			"api",
			[]string{"SLUICE_CHECK_PORT=8080"},
			[]string{"SLUICE_CHECK_PORT: there is no such option; did you mean SLUICE_CHECK_ADDR?"},
		},
		"an argument as a variable": {
			"admin export --tenant acme",
			[]string{"SLUICE_TENANT=acme"},
			[]string{"SLUICE_TENANT: there is no such option"},
		},
		"a duration without its unit": {
			"api --poll-interval 5", nil,
			[]string{`--poll-interval: "5" is not a duration with its unit from 10ms to 1h, such as 50ms, 1s or 2m`},
		},
		"a duration out of range": {
			"api",
			[]string{"SLUICE_STORE_BUDGET=1m"},
			[]string{`SLUICE_STORE_BUDGET: "1m" is not a duration with its unit from 1ms to 10s, such as 50ms, 1s or 2m`},
		},
		"a number out of range": {
			"api --local-buckets 0", nil,
			[]string{`--local-buckets: "0" is not a whole number from 1 to 1000000000`},
		},
		"a bare port": {
			"api --check-addr 8080", nil,
			[]string{`--check-addr: "8080" is not an address such as :8080, 127.0.0.1:8080 or [::1]:8080`},
		},
		"a word that is not in the list": {
			"api --log-format xml --log-level trace", nil,
			[]string{
				`--log-level: "trace" is not one of debug, info, warn, error`,
				`--log-format: "xml" is not one of text, json`,
			},
		},
		"a permission that does not exist": {
			"admin create-key --tenant acme --name ci --permissions check,root", nil,
			[]string{`--permissions: "check,root" is not a list of check, explain, refund, report, lease, read, rules, users, settings, members, keys, alerts, manage, separated by commas`},
		},
		"a network that is none": {
			"sluice dev --webhook-allow 10.0.0.0/8,10.0.0.0/33", nil,
			[]string{`--webhook-allow: "10.0.0.0/8,10.0.0.0/33" is not a list of networks such as 10.1.0.0/16 or addresses, separated by commas`},
		},
		"a toggle that is neither": {
			"admin apply --tenant acme -f x --dry-run=maybe", nil,
			[]string{`--dry-run: "maybe" is not true or false`},
		},
		"a check URL with a query": {
			"admin serve --check-url https://x/?a=b", nil,
			[]string{`--check-url: "https://x/?a=b" is not a URL such as https://limits.example.com, without a query and credentials`},
		},
		"a key prefix with a brace": {
			"api --redis-prefix {blue}", nil,
			[]string{`--redis-prefix: "{blue}" is not at most 32 letters, digits, underscores, dashes, dots and colons`},
		},
		"a bad secret, without showing it": {
			"api",
			[]string{"SLUICE_REDIS_URL=http://:hunter2@cache:6379"},
			[]string{"SLUICE_REDIS_URL is not a URL that begins with redis:// or rediss:// or redis+sentinel:// or " +
				"rediss+sentinel://"},
		},
		"a bad secret in a flag, without showing it": {
			"api --redis-url :hunter2@cache:6379", nil,
			[]string{"--redis-url is not a URL that begins with redis:// or rediss:// or redis+sentinel:// or " +
				"rediss+sentinel://"},
		},
		"a missing argument": {
			"admin apply --tenant acme", nil,
			[]string{"--file is required by admin apply"},
		},
		"every problem at once": {
			"api --verbose --log-level loud",
			[]string{"SLUICE_X=1"},
			[]string{
				"SLUICE_X: there is no such option",
				"--verbose: api has no such option",
				`--log-level: "loud" is not one of debug, info, warn, error`,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(test.line)
			_, err := Parse(words[0], words[1:], append(test.env, database))
			assertProblems(t, err, test.want)
		})
	}
}

func assertProblems(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %q", want)
	}
	lines := strings.Split(err.Error(), "\n")
	if last := lines[len(lines)-1]; !strings.HasSuffix(last, `--help" to see every option`) {
		t.Errorf("the last line is %q", last)
	}
	if got := lines[:len(lines)-1]; !slices.Equal(got, want) {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAPIAndAdminNeedADatabase(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"api", "admin migrate"} {
		words := strings.Fields(line)
		_, err := Parse(words[0], words[1:], nil)
		assertProblems(t, err, []string{
			"--database-url is required by " + line +
				"; it can also be given as SLUICE_DATABASE_URL, or in a file by SLUICE_DATABASE_URL_FILE",
		})
	}
}

func TestOneEnvironmentServesEveryBinary(t *testing.T) {
	t.Parallel()
	shared := []string{database, "SLUICE_CHECK_ADDR=:1080", "SLUICE_ADMIN_ADDR=:1081", "SLUICE_DATA_DIR=/tmp/x"}
	if c := mustParse(t, "api", nil, shared...); c.CheckAddr != ":1080" || c.AdminAddr != "" {
		t.Errorf("api: %+v", c)
	}
	if c := mustParse(t, "admin", []string{"migrate"}, shared...); c.CheckAddr != "" {
		t.Errorf("admin migrate: %+v", c)
	}
}

func TestVariablesThatKubernetesSetsAreNotOptions(t *testing.T) {
	t.Parallel()
	mustParse(t, "api", nil, database,
		"SLUICE_SERVICE_HOST=10.0.0.1",
		"SLUICE_SERVICE_PORT=80",
		"SLUICE_SERVICE_PORT_HTTP=80",
		"SLUICE_PORT=tcp://10.0.0.1:80",
		"SLUICE_PORT_80_TCP=tcp://10.0.0.1:80",
		"SLUICE_PORT_80_TCP_PROTO=tcp",
		"SLUICE_ADMIN_SERVICE_HOST=10.0.0.2",
		"SLUICE_ADMIN_PORT=tcp://10.0.0.2:80",
	)
}

func TestContradictions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		env  []string
		want []string
	}{
		"one address for two listeners": {
			"api --metrics-addr :8080", nil,
			[]string{"--check-addr :8080 (the default) and --metrics-addr :8080 are the same address; each listener " +
				"needs its own"},
		},
		"one port, once on every interface": {
			"api --metrics-addr 127.0.0.1:8080",
			[]string{"SLUICE_CHECK_ADDR=[::]:8080"},
			[]string{"SLUICE_CHECK_ADDR [::]:8080 and --metrics-addr 127.0.0.1:8080 are the same address; each " +
				"listener needs its own"},
		},
		"re-reading more often than polling": {
			"api --poll-interval 2m", nil,
			[]string{"--reread-interval 1m (the default) is shorter than --poll-interval 2m; every reading of all " +
				"rules is also a poll"},
		},
		"a shutdown that cuts off a slow store": {
			"api --shutdown-timeout 1s --store-budget 2s", nil,
			[]string{"--shutdown-timeout 1s is shorter than --store-budget 2s, which a check in flight may need"},
		},
		"demo credentials on the network": {
			"sluice dev --check-addr 0.0.0.0:8080",
			[]string{"SLUICE_ADMIN_ADDR=192.0.2.1:8081"},
			[]string{
				"--check-addr 0.0.0.0:8080 is not a loopback address; everybody knows the demo credentials of sluice " +
					"dev, so that it serves this machine only: use 127.0.0.1, [::1] or localhost",
				"SLUICE_ADMIN_ADDR 192.0.2.1:8081 is not a loopback address; everybody knows the demo credentials of " +
					"sluice dev, so that it serves this machine only: use 127.0.0.1, [::1] or localhost",
			},
		},
		"demo credentials on every interface": {
			"sluice dev --metrics-addr :9090", nil,
			[]string{"--metrics-addr :9090 is not a loopback address; everybody knows the demo credentials of sluice " +
				"dev, so that it serves this machine only: use 127.0.0.1, [::1] or localhost"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(test.line)
			_, err := Parse(words[0], words[1:], append(test.env, database))
			assertProblems(t, err, test.want)
		})
	}
}

func TestAddressesThatOnlyLookAlikeAreFine(t *testing.T) {
	t.Parallel()
	mustParse(t, "api", []string{"--check-addr", "127.0.0.1:80", "--metrics-addr", "127.0.0.2:80"}, database)
	mustParse(t, "api", []string{"--check-addr", ":0", "--metrics-addr", ":0"}, database)
	mustParse(t, "sluice", []string{
		"dev", "--check-addr", "[::1]:0", "--admin-addr", "localhost:0", "--metrics-addr",
		"127.9.9.9:0",
	})
}
