package e2e_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/certs/certstest"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const storePassword = "hunter2/?#@:%"

// secureRedis is a Redis that takes TLS with certificates of its authority only, a user app of an ACL, and a sentinel
// that watches it.
type secureRedis struct{ addr, sentinel string }

func newSecureRedis(t *testing.T, ca *certstest.Authority) secureRedis {
	t.Helper()
	server := devdbtest.Redis(t)
	pair := ca.Valid(t, "redis")
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for _, command := range [][]any{
		{
			"CONFIG", "SET", "tls-cert-file", pair.CertFile, "tls-key-file", pair.KeyFile, "tls-ca-cert-file",
			ca.CAFile,
			"tls-auth-clients", "yes",
		},
		{"ACL", "SETUSER", "app", "on", ">" + storePassword, "~*", "&*", "+@all"},
		{"CONFIG", "SET", "tls-port", port.String()},
		{"ACL", "SETUSER", "default", "off"},
	} {
		if err := client.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v: %v", command[:3], err)
		}
	}
	return secureRedis{port.Addr(), startSentinel(t, ca, pair, port)}
}

func startSentinel(t *testing.T, ca *certstest.Authority, pair certstest.Pair, master *devdb.Port) string {
	t.Helper()
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport 0\ntls-port %s\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file "+
		"%s\ntls-auth-clients yes\n"+
		"tls-replication yes\nrequirepass \"%s\"\nsentinel monitor limits 127.0.0.1 %s 1\nsentinel auth-user limits "+
		"app\nsentinel auth-pass limits \"%s\"\n",
		port, pair.CertFile, pair.KeyFile, ca.CAFile, storePassword, master, storePassword)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("redis-server", file, "--sentinel")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	config := ca.Client(t, pair)
	eventually(t, patience, "the sentinel to listen", func() bool {
		c, err := tls.Dial("tcp", port.Addr(), config)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return port.Addr()
}

// securePostgres is a PostgreSQL with a migrated database and a role app, which needs TLS with a certificate in its
// name and a password.
type securePostgres struct {
	url   string // as that role, with neither
	owner *pgx.Conn
}

func newSecurePostgres(t *testing.T, ca *certstest.Authority) securePostgres {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-test-postgres-") // one of t's would keep the server's user out
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	database, err := server.CreateDatabase(t.Context(), "sluice")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	at, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	p := securePostgres{"postgres://app@" + at.Host + "/sluice", conn}
	p.exec(t,
		"CREATE ROLE app LOGIN PASSWORD '"+storePassword+"'",
		`COPY (SELECT 'hostssl all app all scram-sha-256 clientcert=verify-full') TO PROGRAM 'cat - pg_hba.conf > new; sed -n 1p new > hba; echo "host all sluice all scram-sha-256" >> hba; cat hba > pg_hba.conf'`)
	admin(t, database, "migrate", "--grant-to", "app")
	p.trust(t, ca)
	return p
}

func (p securePostgres) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := p.owner.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
}

func (p securePostgres) trust(t *testing.T, ca *certstest.Authority) {
	t.Helper()
	pair := ca.Valid(t, "postgres")
	for name, from := range map[string]string{
		"ca.pem": ca.CAFile, "server.crt": pair.CertFile,
		"server.key": pair.KeyFile,
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		// Written by the server: it runs as another user when the tests run as root.
		p.exec(t, fmt.Sprintf("COPY (SELECT $x$%s$x$) TO PROGRAM $x$umask 077; printf '%%b' \"$(cat)\" > %s$x$", text,
			name))
	}
	p.exec(t, "ALTER SYSTEM SET ssl_ca_file = 'ca.pem'", "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
}

func (p securePostgres) connections(t *testing.T) (n int) {
	t.Helper()
	if err := p.owner.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestARenewedAuthorityOfPostgreSQLNeedsNoRestart(t *testing.T) {
	t.Parallel()
	ca, next := certstest.New(t), certstest.New(t)
	database := newSecurePostgres(t, ca)
	app, dir := ca.Valid(t, "app"), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(from, name string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(ca.CAFile, "ca.pem")
	put(app.CertFile, "app.pem")
	put(app.KeyFile, "app.key")
	address := database.url + fmt.Sprintf("?sslmode=verify-full&sslrootcert=%s&sslcert=%s&sslkey=%s", at("ca.pem"),
		at("app.pem"), at("app.key"))
	p := spawn(t, []string{
		"SLUICE_DATABASE_URL=" + address, "SLUICE_DATABASE_PASSWORD_FILE=" + secretFile(t, storePassword),
		"SLUICE_BUCKETS=postgres",
		"SLUICE_CHECK_ADDR=127.0.0.1:0", "SLUICE_METRICS_ADDR=127.0.0.1:0", "SLUICE_LOG_FORMAT=json",
	}, "api")
	eventually(t, patience, "the process to connect", func() bool { return database.connections(t) > 0 })

	renewed := next.Valid(t, "app")
	database.trust(t, next)
	own, err := pgx.ParseConfig(database.url + fmt.Sprintf("?sslmode=verify-full&sslrootcert=%s&sslcert=%s&sslkey=%s",
		next.CAFile, renewed.CertFile, renewed.KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	own.Password = storePassword
	eventually(t, patience, "the server to use the next authority", func() bool {
		conn, err := pgx.ConnectConfig(t.Context(), own)
		return err == nil && conn.Close(t.Context()) == nil
	})
	put(next.CAFile, "ca.pem")
	put(renewed.CertFile, "app.pem") // its key is still the old one
	eventually(t, patience, "the connections of before to end", func() bool {
		// Again each time: one that is being opened is not listed yet.
		database.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
		return database.connections(t) == 0
	})
	eventually(t, patience, "the log to say that the files cannot be used", func() bool {
		return strings.Contains(p.stderr.String(), "TLS files have changed and cannot be used")
	})
	put(renewed.KeyFile, "app.key")
	eventually(t, patience, "the process to connect by the renewed certificates",
		func() bool { return database.connections(t) > 0 })
	if log := p.stderr.String(); strings.Contains(log, "hunter2") || strings.Contains(log, "PRIVATE") {
		t.Errorf("a secret in the log:\n%s", log)
	}
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestEveryConnectionByTLS(t *testing.T) {
	t.Parallel()
	ca, other := certstest.New(t), certstest.New(t)
	app, server, expired := ca.Valid(t, "app"), ca.Valid(t, "server"), ca.Issue(t, "late", time.Now().Add(-time.Minute))
	base := newSecurePostgres(t, ca).url
	database := base + fmt.Sprintf("?sslmode=verify-full&sslrootcert=%s&sslcert=%s&sslkey=%s", ca.CAFile, app.CertFile,
		app.KeyFile)
	store := newSecureRedis(t, ca)
	env := []string{
		"SLUICE_DATABASE_URL_FILE=" + secretFile(t, database), "SLUICE_DATABASE_PASSWORD_FILE=" +
			secretFile(t, storePassword),
		"SLUICE_REDIS_URL=rediss://app@" + store.addr, "SLUICE_REDIS_PASSWORD_FILE=" + secretFile(t, storePassword),
		"SLUICE_STORE_BUDGET=5s",
		"SLUICE_REDIS_TLS_CA=" + ca.CAFile, "SLUICE_REDIS_TLS_CERT=" + app.CertFile,
		"SLUICE_REDIS_TLS_KEY=" + app.KeyFile,
		"SLUICE_CHECK_ADDR=127.0.0.1:0", "SLUICE_ADMIN_ADDR=127.0.0.1:0", "SLUICE_METRICS_ADDR=127.0.0.1:0",
		"SLUICE_LOG_FORMAT=json", "SLUICE_SHUTDOWN_TIMEOUT=1m", "SLUICE_DRAIN_DELAY=1h", "SLUICE_PPROF=true",
	}
	for _, listener := range []string{"CHECK", "ADMIN", "METRICS"} {
		env = append(env, "SLUICE_"+listener+"_TLS_CERT="+server.CertFile,
			"SLUICE_"+listener+"_TLS_KEY="+server.KeyFile,
			"SLUICE_"+listener+"_TLS_CLIENT_CA="+ca.CAFile)
	}
	command := func(args ...string) string {
		t.Helper()
		r := run(t, env, "admin", args...)
		if r.status != 0 {
			t.Fatalf("admin %v: %s", args, r.stderr)
		}
		return strings.TrimSpace(r.stdout)
	}
	command("create-tenant", "--slug", "acme", "--name", "Acme")
	key := command("create-key", "--tenant", "acme", "--name", "ci")
	command("apply", "--tenant", "acme", "-f",
		writeRules(t, `rules: [{key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 2}]`))
	with := func(changes ...string) []string { return append(append([]string{}, env...), changes...) }

	trusting := newClient(t)
	trusting.Transport.(*http.Transport).TLSClientConfig = ca.Client(t, app)
	nobody := newClient(t)
	nobody.Transport.(*http.Transport).TLSClientConfig = ca.Client(t, certstest.Pair{})
	start := func(t *testing.T, env []string) (*process, *api) {
		t.Helper()
		p := spawn(t, env, "api")
		addresses := p.await(t, &p.stderr, answeringChecks)
		a := &api{process: p, checks: addresses[1], metrics: addresses[2], key: key, client: trusting}
		eventually(t, patience, "the api process to be ready",
			func() bool { return a.getTLS(t, trusting, a.checks, "/readyz").status == 200 })
		return p, a
	}
	p, a := start(t, env)
	for i, want := range []int{200, 200, 429} {
		if got := a.checkTLS(t); got.status != want || got.Degraded {
			t.Errorf("check %d is answered %d %s, want %d from Redis", i, got.status, got.text, want)
		}
	}
	for _, addr := range []string{a.checks, a.metrics} {
		if response, err := nobody.Get("https://" + addr + "/healthz"); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s answers a client without a certificate", addr)
		} else if !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("%s refuses a client without a certificate with %v", addr, err)
		}
		if response, err := newClient(t).Get("http://" + addr + "/healthz"); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				t.Errorf("%s answers without TLS", addr)
			}
		}
	}
	if got := a.getTLS(t, trusting, a.metrics, "/metrics"); got.status != 200 ||
		!strings.Contains(got.text, "sluice_checks_total") {
		t.Errorf("/metrics is answered %d", got.status)
	}
	if got := a.getTLS(t, trusting, a.metrics, "/debug/pprof/goroutine?debug=1"); got.status != 200 ||
		!strings.Contains(got.text, "goroutine profile") {
		t.Errorf("a profile is answered %d %s", got.status, got.text)
	}
	surface := spawn(t, env, "admin", "serve")
	at := surface.await(t, &surface.stderr, answeringAdmin)
	if got := a.getTLS(t, trusting, at[1], "/healthz"); got.status != 200 {
		t.Errorf("the admin API answers %d %s", got.status, got.text)
	}

	// While it drains, it is not ready and answers as ever.
	p.terminate(t)
	for _, addr := range []string{a.checks, a.metrics} {
		eventually(t, patience, "readiness to fail",
			func() bool { return a.getTLS(t, trusting, addr, "/readyz").status == 503 })
	}
	if got := a.checkTLS(t); got.status != 429 || got.Degraded {
		t.Errorf("a check is answered %d %s while the process drains, want 429 from Redis", got.status, got.text)
	}

	t.Run("by a sentinel", func(t *testing.T) {
		t.Parallel()
		_, a := start(t, with("SLUICE_REDIS_URL=rediss+sentinel://app@"+store.sentinel+"/limits",
			"SLUICE_REDIS_SENTINEL_PASSWORD="+storePassword))
		if got := a.checkTLS(t); got.status != 429 || got.Degraded {
			t.Errorf("a check is answered %d %s, want 429 from Redis", got.status, got.text)
		}
	})
	for name, test := range map[string]struct {
		change string
		want   []string
	}{
		"Redis with another CA": {
			"SLUICE_REDIS_TLS_CA=" + other.CAFile,
			[]string{"its certificate is not signed by the authorities of SLUICE_REDIS_TLS_CA"},
		},
		"Redis with the system's CAs": {
			"SLUICE_REDIS_TLS_CA=",
			[]string{"name its authority by SLUICE_REDIS_TLS_CA"},
		},
		"Redis with the wrong password": {
			"SLUICE_REDIS_PASSWORD_FILE=" + secretFile(t, "hunter3"),
			[]string{"SLUICE_REDIS_PASSWORD: ", "WRONGPASS"},
		},
		"PostgreSQL with another CA": {
			"SLUICE_DATABASE_URL_FILE=" + secretFile(t, strings.Replace(database, ca.CAFile, other.CAFile, 1)),
			[]string{"check sslrootcert and the host in SLUICE_DATABASE_URL"},
		},
		"PostgreSQL with the wrong password": {
			"SLUICE_DATABASE_PASSWORD_FILE=" + secretFile(t, "hunter3"), []string{"SLUICE_DATABASE_PASSWORD"},
		},
		"PostgreSQL without TLS": {
			"SLUICE_DATABASE_URL_FILE=" + secretFile(t, base+"?sslmode=disable"),
			[]string{"SLUICE_DATABASE_URL", "no encryption"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := spawn(t, with(test.change), "api")
			eventually(t, patience, fmt.Sprintf("the log to say %q", test.want), func() bool {
				for _, want := range test.want {
					if !strings.Contains(p.stderr.String(), want) {
						return false
					}
				}
				return true
			})
			if strings.Contains(p.stderr.String(), "hunter") {
				t.Errorf("a password in the log:\n%s", p.stderr.String())
			}
		})
	}
	for name, test := range map[string]struct{ change, want string }{
		"an expired certificate of a listener": {"SLUICE_CHECK_TLS_CERT=" + expired.CertFile +
			"\nSLUICE_CHECK_TLS_KEY=" + expired.KeyFile, "SLUICE_CHECK_TLS_CERT: the certificate in " +
			expired.CertFile + " expired at"},
		"a missing key": {
			"SLUICE_METRICS_TLS_KEY=/nowhere",
			"SLUICE_METRICS_TLS_KEY: open /nowhere",
		},
		"a missing CA of PostgreSQL": {"SLUICE_DATABASE_URL_FILE=" +
			secretFile(t, strings.Replace(database, ca.CAFile, "/nowhere", 1)), "read SLUICE_DATABASE_URL: "},
		"a secret file that is missing": {
			"SLUICE_REDIS_PASSWORD_FILE=/nowhere",
			"SLUICE_REDIS_PASSWORD_FILE: open /nowhere",
		},
		"two passwords": {
			"SLUICE_REDIS_URL=rediss://app:hunter3@" + store.addr,
			"SLUICE_REDIS_PASSWORD_FILE and SLUICE_REDIS_URL both have a password",
		},
		"a CA for a Redis without TLS": {
			"SLUICE_REDIS_URL=redis://app@" + store.addr,
			"need a --redis-url that begins with rediss://",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, with(strings.Split(test.change, "\n")...), "api")
			if r.status == 0 || !strings.Contains(r.stderr, test.want) || strings.Contains(r.stderr, "hunter") {
				t.Errorf("status %d, want %q in\n%s", r.status, test.want, r.stderr)
			}
		})
	}
}

func (a *api) checkTLS(t *testing.T) answer {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, "https://"+a.checks+"/v1/check",
		strings.NewReader(`{"user_id":"42"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+a.key)
	request.Header.Set("Content-Type", "application/json")
	got, err := send(a.client, request)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (a *api) getTLS(t *testing.T, client *http.Client, addr, path string) answer {
	t.Helper()
	response, err := client.Get("https://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: response.StatusCode, text: string(text)}
}
