package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// proxyConfig is what docs/production.md recommends, with quick probes.
const proxyConfig = `
global
    stats socket %[1]s level admin
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    timeout server 5s
    retries 3
    option redispatch
frontend checks
    bind %[2]s
    default_backend api
backend api
    balance roundrobin
    option httpchk GET /readyz
    default-server check inter 100ms fall 2 rise 1
    server a %[3]s
    server b %[4]s
`

// proxied is HAProxy before two addresses of api processes.
type proxied struct{ addr, socket string }

func startProxy(t *testing.T, a, b string) proxied {
	t.Helper()
	dir := t.TempDir()
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	p := proxied{port.Addr(), filepath.Join(dir, "s")}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(proxyConfig, p.socket, p.addr, a, b)), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // which is not on everybody's PATH
	}
	var said strings.Builder
	command := exec.Command(program, "-db", "-f", config)
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatalf("scripts/install.sh test installs HAProxy: %v", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Logf("HAProxy wrote:\n%s", said.String())
		}
	})
	return p
}

// ask sends a command to HAProxy.
func (p proxied) ask(t *testing.T, command string) string {
	t.Helper()
	conn, err := net.Dial("unix", p.socket)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, command+"\n")
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// awaitUp waits until HAProxy sends requests to a server.
func (p proxied) awaitUp(t *testing.T, server string) {
	t.Helper()
	eventually(t, patience, "HAProxy to use "+server, func() bool {
		for line := range strings.SplitSeq(p.ask(t, "show stat"), "\n") {
			if fields := strings.Split(line, ","); len(fields) > 17 && fields[0] == "api" && fields[1] == server {
				return fields[17] == "UP"
			}
		}
		return false
	})
}

// loadOf asks checks at a rate, from many connections, until stop is closed.
type loadOf struct {
	mu       sync.Mutex
	allowed  int
	problems []string
}

func (l *loadOf) run(t *testing.T, addr, key string, perSecond int, stop <-chan struct{}) {
	t.Helper()
	const callers = 50
	var all sync.WaitGroup
	for caller := range callers {
		client := newClient(t)
		all.Go(func() {
			tick := time.NewTicker(callers * time.Second / time.Duration(perSecond))
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				l.note((&api{checks: addr, key: key, client: client}).try(fmt.Sprintf(`{"user_id":"%d","endpoint":"/metered"}`, caller)))
			}
		})
	}
	all.Wait()
}

func (l *loadOf) note(got answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.problems = append(l.problems, err.Error())
	case got.status != http.StatusOK || got.Degraded:
		l.problems = append(l.problems, fmt.Sprint(got.status, " ", got.text))
	default:
		l.allowed++
	}
}

const meteredRules = `rules:
  - {key_pattern: "user:{user_id}", rate: 1000/second, burst_capacity: 10000}
  - {key_pattern: "endpoint:/metered", rate: 1000/day, burst_capacity: 365000}`

// meter returns how many tokens of the metered endpoint were taken, less one for each 86 s.
func (a *api) meter(t *testing.T) int {
	t.Helper()
	got := a.check(t, `{"endpoint":"/metered","cost":0}`)
	return 365_000 - int(got.remaining(t, "endpoint:/metered"))
}

func TestARollingRestartBehindAProxyFailsNoRequest(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, meteredRules)
	store := devdbtest.Redis(t).URL()
	start := func(port *devdb.Port) *api {
		a := tn.spawnAPI(t, store, "--check-addr", port.Addr(), "--drain-delay=1s", unhurried)
		eventually(t, patience, "the api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
		return a
	}
	ports := []*devdb.Port{reserve(t), reserve(t)}
	apis := []*api{start(ports[0]), start(ports[1])}
	p := startProxy(t, ports[0].Addr(), ports[1].Addr())
	for _, server := range []string{"a", "b"} {
		p.awaitUp(t, server)
	}
	perSecond, rounds := 1000, 1
	if *soak {
		rounds = 20
	}
	var load loadOf
	stop, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		load.run(t, p.addr, tn.key, perSecond, stop)
	}()
	for range rounds {
		for i, server := range []string{"a", "b"} {
			apis[i].stop(t)
			apis[i] = start(ports[i])
			p.awaitUp(t, server)
		}
	}
	close(stop)
	<-ended
	t.Logf("%d requests in %s, %.0f a second", load.allowed, time.Since(began).Round(time.Millisecond), float64(load.allowed)/time.Since(began).Seconds())
	if n := len(load.problems); n > 0 {
		t.Errorf("%d requests failed, such as %q", n, load.problems[:min(n, 5)])
	}
	if load.allowed < 500 {
		t.Errorf("only %d requests were answered", load.allowed)
	}
	if taken := apis[0].meter(t); taken > load.allowed || taken < load.allowed-2 {
		t.Errorf("%d tokens were taken for %d requests", taken, load.allowed)
	}
	for _, a := range apis {
		a.stop(t)
	}
}

func reserve(t *testing.T) *devdb.Port {
	t.Helper()
	port, err := devdb.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	return port
}

// before is the last commit before TLS, releases and charts. Its binaries know neither draining nor new algorithms.
const before = "0038af7b4341436605216952df8dc88f57d1e69b"

// oldBinaries builds the programs of that commit.
func oldBinaries(t *testing.T) string {
	t.Helper()
	if exec.Command("git", "-C", "..", "cat-file", "-e", before+"^{commit}").Run() != nil {
		t.Skip("this clone has no history to upgrade from")
	}
	source, out := t.TempDir(), t.TempDir()
	script := `git -C .. archive "$1" | tar -x -C "$2" && cd "$2" && mkdir -p web/dist && touch web/dist/.gitkeep && CGO_ENABLED=0 go build -o "$3/" ./cmd/api ./cmd/admin`
	if output, err := exec.CommandContext(t.Context(), "bash", "-c", "set -o pipefail; "+script, "bash", before, source, out).CombinedOutput(); err != nil {
		t.Fatalf("build the commit before: %v\n%s", err, output)
	}
	return out
}

// An upgrade is the migration, then one process after the other. Nobody is denied, no token and no count is lost.
func TestAnUpgradeUnderLoadDeniesNobodyAndLosesNothing(t *testing.T) {
	t.Parallel()
	if !*soak {
		t.Skip("it builds the release before; make soak runs it")
	}
	old := oldBinaries(t)
	database, store := devdbtest.EmptyPostgres(t), devdbtest.Redis(t).URL()
	oldAdmin := func(args ...string) string {
		command := exec.Command(filepath.Join(old, "admin"), args...)
		command.Env = []string{"SLUICE_DATABASE_URL=" + database, "PATH=" + os.Getenv("PATH")}
		output, err := command.Output()
		if err != nil {
			t.Fatalf("admin %v: %v", args, err)
		}
		return strings.TrimSpace(string(output))
	}
	oldAdmin("migrate")
	oldAdmin("create-tenant", "--slug", "acme", "--name", "Acme")
	tn := tenant{database, "acme", oldAdmin("create-key", "--tenant", "acme", "--name", "ci", "--permissions", "check,explain")}
	oldAdmin("apply", "--tenant", "acme", "-f", writeRules(t, meteredRules))
	exported := oldAdmin("export", "--tenant", "acme")

	ports := []*devdb.Port{reserve(t), reserve(t)}
	var olds []*exec.Cmd
	for _, port := range ports {
		command := exec.Command(filepath.Join(old, "api"), "--check-addr", port.Addr(), unhurried)
		command.Env = append(tn.apiEnvironment(store), "PATH="+os.Getenv("PATH"))
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = command.Process.Kill() })
		olds = append(olds, command)
	}
	p := startProxy(t, ports[0].Addr(), ports[1].Addr())
	for _, server := range []string{"a", "b"} {
		p.awaitUp(t, server)
	}
	var load loadOf
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		load.run(t, p.addr, tn.key, 500, stop)
	}()
	admin(t, database, "migrate")
	var apis []*api
	for i, server := range []string{"a", "b"} {
		p.ask(t, "set server api/"+server+" state drain")
		eventually(t, patience, "the last request of the old process", func() bool {
			return !slices.ContainsFunc(strings.Split(p.ask(t, "show stat"), "\n"), func(line string) bool {
				fields := strings.Split(line, ",")
				return len(fields) > 4 && fields[0] == "api" && fields[1] == server && fields[4] != "0"
			})
		})
		_ = olds[i].Process.Signal(os.Interrupt)
		if err := olds[i].Wait(); err != nil {
			t.Errorf("the old process ended with %v", err)
		}
		a := tn.spawnAPI(t, store, "--check-addr", ports[i].Addr(), unhurried)
		eventually(t, patience, "the new process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
		apis = append(apis, a)
		p.ask(t, "set server api/"+server+" state ready")
		p.awaitUp(t, server)
	}
	close(stop)
	<-ended
	t.Logf("%d requests during the upgrade", load.allowed)
	if n := len(load.problems); n > 0 {
		t.Errorf("%d requests failed, such as %q", n, load.problems[:min(n, 5)])
	}
	if taken := apis[0].meter(t); taken > load.allowed || taken < load.allowed-2 {
		t.Errorf("%d tokens were taken for %d requests", taken, load.allowed)
	}
	for _, a := range apis {
		a.stop(t) // which writes what it has counted
	}
	if got := strings.TrimSpace(admin(t, database, "export", "--tenant", "acme")); got != exported {
		t.Errorf("the rules are now\n%s\nand were\n%s", got, exported)
	}
	if counted := recorded(t, database); counted < load.allowed {
		t.Errorf("%d of %d checks are counted in the database", counted, load.allowed)
	}
}

// recorded returns how many checks the database has counted.
func recorded(t *testing.T, database string) (checks int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.QueryRow(t.Context(), "SELECT coalesce(sum(allowed + denied + bypassed), 0)::bigint FROM decision_minute WHERE rule_id = 0").Scan(&checks); err != nil {
		t.Fatal(err)
	}
	return checks
}
