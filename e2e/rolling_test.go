package e2e_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

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
				l.note((&api{
					checks: addr, key: key,
					client: client,
				}).try(fmt.Sprintf(`{"user_id":"%d","endpoint":"/metered"}`, caller)))
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

// meter returns the tokens taken from the metered endpoint, less one for each 86 s.
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
		a := tn.spawnAPI(t, store, "--check-addr", port.Addr(), "--drain-delay=1s")
		eventually(t, patience, "the api process to be ready",
			func() bool { return a.ready(t).status == http.StatusOK })
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
	t.Logf("%d requests in %s, %.0f a second", load.allowed, time.Since(began).Round(time.Millisecond),
		float64(load.allowed)/time.Since(began).Seconds())
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
