package e2e_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// gateway is a real proxy in front of an upstream, with its example of deploy/examples.
type gateway struct {
	url    string
	client *http.Client
	line   *line            // to Sluice
	seen   chan http.Header // by the upstream
}

// proxies are those that can be installed here, and what they answer while Sluice is down.
var proxies = map[string]struct {
	files []string
	start func(folder string) *exec.Cmd
	down  int
}{
	"nginx": {[]string{"sluice.conf"}, func(folder string) *exec.Cmd {
		main := "daemon off; pid nginx.pid; error_log stderr; worker_processes 1; events {}\n" +
			"http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n" +
			"include sluice.conf; }\n"
		_ = os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(main), 0o600)
		return exec.Command("nginx", "-p", folder, "-c", "nginx.conf", "-e", "stderr")
	}, http.StatusOK},
	"caddy": {[]string{"Caddyfile"}, func(folder string) *exec.Cmd {
		file := filepath.Join(folder, "Caddyfile")
		text, _ := os.ReadFile(file)
		_ = os.WriteFile(file, append([]byte("{\n\tadmin off\n}\n"), text...), 0o600) // several run at once
		return exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", file)
	}, http.StatusBadGateway},
	"haproxy": {[]string{"haproxy.cfg", "sluice.lua"}, func(string) *exec.Cmd {
		return exec.Command("haproxy", "-db", "-f", "haproxy.cfg")
	}, http.StatusOK},
}

const gatewayRules = `
gateways:
  authorize:
    user: {header: X-User, plain: true}
    endpoint: {templates: ["/orders/{id}"]}
rules:
  - {key_pattern: "ip:{ip}", rate: 1/hour, burst_capacity: 3}
  - {key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 100}
  - {key_pattern: "endpoint:POST /orders/{id}", rate: 1/hour, burst_capacity: 1}
`

func TestAGatewayAsksSluice(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTenant(t, gatewayRules)
			a := tn.startAPI(t, devdbtest.Redis(t).URL())
			g := tn.startGateway(t, name, a.checks)

			// A visitor's own headers change neither who they are nor what reaches the upstream.
			spoofed := func(i int) http.Header {
				return http.Header{
					"X-User": {fmt.Sprint("spoofed-", i)}, "X-Sluice-Key": {"slk_spoofed"}, "X-Forwarded-For": {fmt.Sprintf("6.6.6.%d", i)},
					"X-Forwarded-Uri": {"/elsewhere"}, "X-Forwarded-Method": {"PUT"}, "X-Original-Uri": {"/elsewhere"},
				}
			}
			for i := range 3 {
				method := []string{"GET", "POST", "GET"}[i]
				response := g.ask(t, method, "/orders/17?x=1", spoofed(i))
				if response.StatusCode != 200 || !strings.Contains(response.Header.Get("RateLimit"), fmt.Sprintf(`;r=%d;`, 2-i)) ||
					strings.Contains(response.Header.Get("RateLimit"), "user-") {
					t.Fatalf("request %d is answered %d with %v", i, response.StatusCode, response.Header)
				}
				if got, want := strings.Contains(response.Header.Get("RateLimit"), "endpoint-"), method == "POST"; got != want {
					t.Errorf("a %s has the limits %s", method, response.Header.Get("RateLimit"))
				}
				seen := <-g.seen
				if text := fmt.Sprint(seen); strings.Contains(text, "slk_") || seen.Get("X-User") != "" {
					t.Errorf("the upstream sees %v", seen)
				}
			}
			response := g.ask(t, "GET", "/orders/17", spoofed(9))
			if response.StatusCode != 429 || response.Header.Get("Retry-After") == "" || !strings.Contains(response.Header.Get("RateLimit"), ";r=0;") ||
				response.Header.Get("RateLimit-Policy") == "" || response.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("beyond the limit it is answered %d with %v", response.StatusCode, response.Header)
			}
			for range 100 {
				if response := g.ask(t, "GET", "/", nil); response.StatusCode != 429 {
					t.Fatalf("beyond the limit it is answered %d", response.StatusCode)
				}
			}
			if opened := g.line.opened.Load(); opened > 10 {
				t.Errorf("%d connections were opened for 104 questions", opened)
			}

			g.line.cut()
			began := time.Now()
			response = g.ask(t, "GET", "/", nil)
			if response.StatusCode != proxies[name].down {
				t.Errorf("while Sluice is down it is answered %d, want %d", response.StatusCode, proxies[name].down)
			}
			t.Logf("while Sluice is down: %d after %s", response.StatusCode, time.Since(began))
			g.line.mend(t)
			eventually(t, patience, "limits to be back", func() bool { return g.ask(t, "GET", "/", nil).StatusCode == 429 })
		})
	}
}

// TestAGatewaySurvivesARestart of Sluice under load: each answer is allowed or what the example says of an outage.
func TestAGatewaySurvivesARestart(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTenant(t, "rules:\n  - {key_pattern: \"ip:{ip}\", rate: 1000000/second, burst_capacity: 1000000}\n")
			redis := devdbtest.Redis(t).URL()
			first := tn.startAPI(t, redis)
			g := tn.startGateway(t, name, first.checks)
			var limited, open, failed atomic.Int64
			done := make(chan struct{})
			var load sync.WaitGroup
			for range 4 {
				load.Go(func() {
					for {
						select {
						case <-done:
							return
						case <-g.seen:
						default:
						}
						response, err := g.try("GET", "/", nil)
						switch {
						case err == nil && response.StatusCode == 200 && response.Header.Get("RateLimit") != "":
							limited.Add(1)
						case err == nil && response.StatusCode == proxies[name].down:
							open.Add(1)
						default:
							failed.Add(1)
							t.Errorf("answered %v, %v", response, err)
							return
						}
					}
				})
			}
			eventually(t, patience, "checks before the restart", func() bool { return limited.Load() > 100 || t.Failed() })
			first.stop(t)
			second := tn.startAPI(t, redis)
			g.line.to.Store(&second.checks)
			before := limited.Load()
			eventually(t, patience, "checks after the restart", func() bool { return limited.Load() > before+100 || t.Failed() })
			close(done)
			load.Wait()
			t.Logf("%d limited, %d as in an outage, %d failed", limited.Load(), open.Load(), failed.Load())
		})
	}
}

func (tn tenant) startGateway(t *testing.T, name, checks string) *gateway {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%s is not installed; scripts/install.sh test installs it", name)
	}
	g := &gateway{client: newClient(t), line: newLine(t, checks), seen: make(chan http.Header, 1000)}
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case g.seen <- r.Header:
		default:
		}
	}))
	t.Cleanup(upstream.Close)
	visitors, inner := freeAddress(t), freeAddress(t)
	replace := strings.NewReplacer(
		"127.0.0.1:8080", g.line.addr, "127.0.0.1:3000", upstream.Listener.Addr().String(), "127.0.0.1:8000", visitors,
		"127.0.0.1:8001", inner, "slk_YOUR_KEY", tn.key,
	)
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil { // nginx's workers are another user
		t.Fatal(err)
	}
	for _, file := range proxies[name].files {
		text, err := os.ReadFile(filepath.Join("..", "deploy", "examples", name, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, file), []byte(replace.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := proxies[name].start(folder)
	cmd.Dir, cmd.Env = folder, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder}
	var said output
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, said.String())
		}
	})
	g.url = "http://" + visitors
	eventually(t, patience, name+" to listen", func() bool {
		conn, err := net.Dial("tcp", visitors)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return g
}

// freeAddress returns an address that no other test takes: those ask the system for ports, which it hands out from 32768 on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(20000)))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// reply is an answer whose body was read.
type reply struct {
	StatusCode int
	Header     http.Header
}

func (g *gateway) try(method, path string, header http.Header) (reply, error) {
	var body io.Reader
	if method == "POST" {
		body = strings.NewReader("a body")
	}
	request, err := http.NewRequest(method, g.url+path, body)
	if err != nil {
		return reply{}, err
	}
	request.Header = header.Clone()
	response, err := g.client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return reply{response.StatusCode, response.Header}, err
}

func (g *gateway) ask(t *testing.T, method, path string, header http.Header) reply {
	t.Helper()
	response, err := g.try(method, path, header)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// line leads to Sluice, counts connections, and can be cut.
type line struct {
	addr   string
	to     atomic.Pointer[string]
	opened atomic.Int64

	mu       sync.Mutex
	listener net.Listener
	ends     map[net.Conn]struct{}
	work     sync.WaitGroup
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	l := &line{addr: freeAddress(t), ends: map[net.Conn]struct{}{}}
	l.to.Store(&to)
	l.mend(t)
	t.Cleanup(func() { l.cut(); l.work.Wait() })
	return l
}

func (l *line) mend(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.listener = listener
	l.mu.Unlock()
	l.work.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			l.opened.Add(1)
			to, err := net.Dial("tcp", *l.to.Load())
			if err != nil {
				_ = from.Close()
				continue
			}
			l.mu.Lock()
			l.ends[from], l.ends[to] = struct{}{}, struct{}{}
			l.mu.Unlock()
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				l.work.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	for end := range l.ends {
		_ = end.Close()
	}
	clear(l.ends)
}
