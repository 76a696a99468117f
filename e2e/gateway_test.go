package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

type gateway struct {
	url    string
	client *http.Client
	seen   chan http.Header // by the upstream
}

var proxies = map[string]struct {
	files []string
	start func(folder string) *exec.Cmd
}{
	"nginx": {[]string{"sluice.conf"}, func(folder string) *exec.Cmd {
		main := "daemon off; pid nginx.pid; error_log stderr; worker_processes 1; events {}\n" +
			"http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path " +
			"u; scgi_temp_path s;\n" +
			"include sluice.conf; }\n"
		_ = os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(main), 0o600)
		return exec.Command("nginx", "-p", folder, "-c", "nginx.conf", "-e", "stderr")
	}},
	"caddy": {[]string{"Caddyfile"}, func(folder string) *exec.Cmd {
		file := filepath.Join(folder, "Caddyfile")
		text, _ := os.ReadFile(file)
		_ = os.WriteFile(file, append([]byte("{\n\tadmin off\n}\n"), text...), 0o600) // several run at once
		return exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", file)
	}},
	"haproxy": {[]string{"haproxy.cfg", "sluice.lua"}, func(string) *exec.Cmd {
		return exec.Command("haproxy", "-db", "-f", "haproxy.cfg")
	}},
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
			line := newLine(t, a.checks)
			g := tn.startGateway(t, name, line.addr)

			spoofed := func(i int) http.Header {
				return http.Header{
					"X-User": {fmt.Sprint("spoofed-", i)}, "X-Sluice-Key": {"slk_spoofed"},
					"X-Forwarded-For": {fmt.Sprintf("6.6.6.%d", i)},
					"X-Forwarded-Uri": {"/elsewhere"}, "X-Forwarded-Method": {"PUT"}, "X-Original-Uri": {"/elsewhere"},
				}
			}
			for i := range 3 {
				method := []string{"GET", "POST", "GET"}[i]
				response := g.ask(t, method, "/orders/17?x=1", spoofed(i))
				if response.StatusCode != 200 ||
					!strings.Contains(response.Header.Get("RateLimit"), fmt.Sprintf(`;r=%d;`, 2-i)) ||
					strings.Contains(response.Header.Get("RateLimit"), "user-") {
					t.Fatalf("request %d is answered %d with %v", i, response.StatusCode, response.Header)
				}
				if got, want := strings.Contains(response.Header.Get("RateLimit"), "endpoint-"),
					method == "POST"; got != want {
					t.Errorf("a %s has the limits %s", method, response.Header.Get("RateLimit"))
				}
				seen := <-g.seen
				if text := fmt.Sprint(seen); strings.Contains(text, "slk_") || seen.Get("X-User") != "" {
					t.Errorf("the upstream sees %v", seen)
				}
			}
			response := g.ask(t, "GET", "/orders/17", spoofed(9))
			if response.StatusCode != 429 || response.Header.Get("Retry-After") == "" ||
				!strings.Contains(response.Header.Get("RateLimit"), ";r=0;") ||
				response.Header.Get("RateLimit-Policy") == "" || response.Header.Get("Cache-Control") != "no-store" ||
				response.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("beyond the limit it is answered %d with %v", response.StatusCode, response.Header)
			}
			for range 100 {
				if response := g.ask(t, "GET", "/", nil); response.StatusCode != 429 {
					t.Fatalf("beyond the limit it is answered %d", response.StatusCode)
				}
			}
			if opened := line.opened.Load(); opened > 10 {
				t.Errorf("%d connections were opened for 104 questions", opened)
			}

			line.cut()
			began := time.Now()
			response = g.ask(t, "GET", "/", spoofed(10))
			if _, named := response.Header["Ratelimit"]; response.StatusCode != 200 || named {
				t.Errorf("while Sluice is down it is answered %d with %v, want 200 without limits", response.StatusCode,
					response.Header)
			}
			if seen := fmt.Sprint(<-g.seen); strings.Contains(seen, "slk_") {
				t.Errorf("while Sluice is down the upstream sees %s", seen)
			}
			t.Logf("while Sluice is down: %d after %s", response.StatusCode, time.Since(began))
			line.mend(t)
			eventually(t, patience, "limits to be back",
				func() bool { return g.ask(t, "GET", "/", nil).StatusCode == 429 })
		})
	}
}

// nginx is answered 403 for every refusal.
func TestAGatewayHandsOnWhatSluiceRefuses(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTenant(t, "gateways: {authorize: {address: {trusted_hops: 1, short: refuse}}}\n")
			a := tn.startAPI(t, "")
			g := tn.startGateway(t, name, a.checks)
			if got := g.ask(t, "GET", "/", nil); got.StatusCode != 400 {
				t.Errorf("a list of addresses that is too short is answered %d", got.StatusCode)
			}
			tn.apply(t, `gateways: {authorize: {jwt: {jwks: '{"keys":[{"kty":"OKP","crv":"Ed25519",`+
				`"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}', issuer: https://id.example.com, `+
				"audience: api}}}")
			eventually(t, patience, "tokens to be needed", func() bool {
				got := g.ask(t, "GET", "/", nil)
				return got.StatusCode == 401 && got.Header.Get("Www-Authenticate") == `Bearer error="invalid_token"`
			})
			stranger := tn
			stranger.key = "slk_wrong"
			if got := stranger.startGateway(t, name, a.checks).ask(t, "GET", "/", nil); got.StatusCode != 500 {
				t.Errorf("a wrong key is answered %d", got.StatusCode)
			}
			undecided := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadGateway)
			}))
			t.Cleanup(undecided.Close)
			g = tn.startGateway(t, name, undecided.Listener.Addr().String())
			for i := range 3 {
				if got := g.ask(t, "GET", "/", nil); got.StatusCode != 200 || len(g.seen) != i+1 {
					t.Errorf("while Sluice cannot decide it is answered %d", got.StatusCode)
				}
			}
		})
	}
}

func TestAGatewayPassesStreams(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTenant(t, "rules:\n  - {key_pattern: \"ip:{ip}\", rate: 1/hour, burst_capacity: 3}\n")
			a := tn.startAPI(t, devdbtest.Redis(t).URL())
			g := tn.startGateway(t, name, a.checks)
			host := strings.TrimPrefix(g.url, "http://")
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, "GET /socket HTTP/1.1\r\nHost: "+host+"\r\n"+
				"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			from := bufio.NewReader(conn)
			answer, err := http.ReadResponse(from, nil)
			if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("an upgrade is answered %v, %v", answer, err)
			}
			defer func() { _ = answer.Body.Close() }()
			_, _ = io.WriteString(conn, "hello\n")
			if line, err := from.ReadString('\n'); err != nil || line != "hello\n" {
				t.Errorf("the socket echoes %q, %v", line, err)
			}

			request, err := http.NewRequestWithContext(t.Context(), "GET", g.url+"/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			events, err := g.client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = events.Body.Close() }()
			if line, err := bufio.NewReader(events.Body).ReadString('\n'); err != nil || line != "data: 1\n" {
				t.Errorf("the first event is %q, %v", line, err)
			}
			if limits := events.Header.Values("RateLimit"); len(limits) != 1 || !strings.Contains(limits[0], ";r=1;") {
				t.Errorf("the headers of limits are %q", limits)
			}
		})
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

// The commented lines of the examples do this.
func TestABrowserOfAnotherOriginReadsDenials(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn := newTenant(t, "rules:\n  - {key_pattern: \"ip:{ip}\", rate: 1/hour, burst_capacity: 1}\n"+
				"  - {key_pattern: \"endpoint:OPTIONS /*\", action: bypass}\n")
			a := tn.startAPI(t, devdbtest.Redis(t).URL())
			g := tn.startGateway(t, name, a.checks, "# add_header Access-", "add_header Access-",
				"# http-after-response set-header Access-", "http-after-response set-header Access-",
				"# header Access-", "header Access-")
			const origin = "https://app.example.com"
			for i, want := range []int{200, 429, 429} {
				got := g.ask(t, "GET", "/", http.Header{"Origin": {origin}})
				if got.StatusCode != want ||
					!slices.Equal(got.Header.Values("Access-Control-Allow-Origin"), []string{origin}) ||
					!strings.Contains(got.Header.Get("Access-Control-Expose-Headers"), "Retry-After") {
					t.Errorf("request %d is answered %d with %v", i, got.StatusCode, got.Header)
				}
			}
			if got := g.ask(t, "OPTIONS", "/", nil); got.StatusCode != 200 ||
				got.Header.Get("Access-Control-Allow-Origin") == "" {
				t.Errorf("a preflight is answered %d with %v", got.StatusCode, got.Header)
			}
		})
	}
}

func TestVisitorsSeeNoErrorWhileSluiceIsAway(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			postgres := startPostgres(t)
			direct := postgres.server.URL("sluice")
			admin(t, direct, "migrate")
			tn := newTenantIn(t, direct, "rules:\n  - {key_pattern: \"ip:{ip}\", rate: 100/second, burst_capacity: "+
				"100}\n")
			env := append(tn.apiEnvironment(devdbtest.Redis(t).URL()), "SLUICE_CHECK_ADDR="+reserve(t).Addr())
			start := func() *process { return spawn(t, env, "api") }
			a := start()
			addr := a.await(t, &a.stderr, answeringChecks)[1]
			g := tn.startExample(t, name, addr)
			v := g.visit(t, 8)
			v.awaitLimits(t, "before any outage")
			v.next(t, "without an outage")

			a.stop(t)
			a = start()
			v.awaitLimits(t, "after a restart")
			v.next(t, "a restart")

			a.kill()
			a = start()
			v.awaitLimits(t, "after a kill")
			v.next(t, "a kill")

			a.stop(t)
			thaw := postgres.freeze(t)
			a = start()
			v.awaitPages(t, "while the database is frozen")
			thaw()
			v.awaitLimits(t, "when the database answers")
			v.next(t, "a start without a database")

			a.signal(t, syscall.SIGSTOP)
			v.awaitPages(t, "while Sluice hangs")
			took := v.next(t, "a hanging process")
			a.signal(t, syscall.SIGCONT)
			// The example's time-outs add up to 0.3 s. The rest is for a busy machine.
			if slow := quantile(took, 0.9); slow > 600*time.Millisecond {
				t.Errorf("while Sluice hangs a visitor waits %s", slow)
			}
			v.awaitLimits(t, "when Sluice goes on")
			v.next(t, "its end")
			a.stop(t)
		})
	}
}

type visitors struct {
	mu      sync.Mutex
	answers map[int]int // how many of each status; 0 if there was none
	took    []time.Duration
	pages   int
	limited int
}

func (g *gateway) visit(t *testing.T, connections int) *visitors {
	v := &visitors{answers: map[int]int{}}
	done := make(chan struct{})
	var all sync.WaitGroup
	for range connections {
		all.Go(func() {
			pause := time.NewTicker(2 * time.Millisecond)
			defer pause.Stop()
			for {
				select {
				case <-done:
					return
				case <-pause.C:
				}
				began := time.Now()
				answer, err := g.try("GET", "/", nil)
				v.note(answer, err, time.Since(began))
			}
		})
	}
	t.Cleanup(func() { close(done); all.Wait() })
	return v
}

func (v *visitors) note(answer reply, err error, took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		answer.StatusCode = 0
	}
	v.answers[answer.StatusCode]++
	v.took = append(v.took, took)
	switch {
	case answer.Header.Get("RateLimit") != "":
		v.limited++
	case answer.StatusCode == http.StatusOK:
		v.pages++
	}
}

func (v *visitors) awaitLimits(t *testing.T, when string) { v.await(t, "limits "+when, &v.limited) }

func (v *visitors) awaitPages(t *testing.T, when string) {
	v.await(t, "pages without limits "+when, &v.pages)
}

func (v *visitors) await(t *testing.T, what string, count *int) {
	t.Helper()
	v.mu.Lock()
	*count = 0
	v.mu.Unlock()
	eventually(t, patience, what, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return *count > 100
	})
}

func (v *visitors) next(t *testing.T, what string) []time.Duration {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	t.Logf("%s: %v, the slowest after %s", what, v.answers, slices.Max(v.took))
	for status := range v.answers {
		if status != http.StatusOK && status != http.StatusTooManyRequests {
			t.Errorf("%s is answered %v, want 200 and 429 alone", what, v.answers)
			break
		}
	}
	took := v.took
	v.answers, v.took = map[int]int{}, nil
	return took
}

func TestAProcessHasTheKeysOfTokensWhenItAnswers(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w,
			`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	}))
	t.Cleanup(issuer.Close)
	tn := newTenant(t, "gateways: {authorize: {jwt: {jwks_url: "+issuer.URL+", issuer: https://id.example.com, "+
		"audience: api}}}\n")
	for range 3 {
		a := tn.startAPI(t, "", "--jwks-allow=127.0.0.0/8")
		request, err := http.NewRequest("GET", "http://"+a.checks+"/v1/authorize", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"X-Sluice-Key": {a.key}, "Authorization": {"Bearer of.another.issuer"}}
		if got, err := send(a.client, request); err != nil || got.status != 401 {
			t.Errorf("a wrong token is answered %d %s (%v), want 401", got.status, got.text, err)
		}
	}
}

// startGateway starts a proxy by its example, which waits longer for Sluice than 200 ms, because the machine may
// be busy.
func (tn tenant) startGateway(t *testing.T, name, sluice string, edits ...string) *gateway {
	t.Helper()
	return tn.startExample(t, name, sluice, append(edits, " 100ms", " 30s", " 200ms", " 30s", "timeout = 300,",
		"timeout = 30000,")...)
}

func (tn tenant) startExample(t *testing.T, name, sluice string, edits ...string) *gateway {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Fatalf("%s is not installed; scripts/install.sh test installs it", name)
	}
	g := &gateway{client: newClient(t), seen: make(chan http.Header, 1000)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case g.seen <- r.Header:
		default:
		}
		switch r.URL.Path {
		case "/socket":
			echo(w, r)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("RateLimit", "the app's")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(upstream.Close)
	visitors, inner := freeAddress(t), freeAddress(t)
	replace := strings.NewReplacer(append(edits,
		"127.0.0.1:8080", sluice, "127.0.0.1:3000", upstream.Listener.Addr().String(), "127.0.0.1:8000", visitors,
		"127.0.0.1:8001", inner, "slk_YOUR_KEY", tn.key,
	)...)
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
		_ = cmd.Process.Signal(syscall.SIGTERM)
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

// freeAddress returns an address below 32768, where the system begins to hand out ports to other tests.
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
