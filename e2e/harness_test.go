package e2e_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const (
	// patience bounds waits for events without a promised time.
	patience = time.Minute
	// changesArriveIn bounds the time until a changed rule is in force everywhere, and until enforcement is back after
	// Redis is.
	changesArriveIn = 2 * time.Second
	pollEvery       = 10 * time.Millisecond
)

var soak = flag.Bool("soak", false, "let loads and outages last longer")

var binaries string

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{devdbtest.Main(m)}) }

type suite struct{ tests devdbtest.Suite }

func (s suite) Run() int {
	var err error
	if binaries, err = os.MkdirTemp("", "sluice-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, "make a folder for the binaries:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(binaries) }()
	if err := flag.Set("test.parallel", "4"); err != nil { // most of them wait most of the time
		fmt.Fprintln(os.Stderr, "let tests run in parallel:", err)
		return 1
	}
	flag.Parse() // -parallel on the command line comes after
	return s.tests.Run()
}

var build = sync.OnceValue(func() error {
	// Without these calls go test would take an old result for a new one.
	for _, sources := range []string{"cmd", "db", "internal", "go.mod"} {
		looked := filepath.WalkDir(filepath.Join("..", sources),
			func(_ string, _ fs.DirEntry, err error) error { return err })
		if looked != nil {
			return fmt.Errorf("look at the sources of the binaries: %w", looked)
		}
	}
	command := exec.Command("go", "build", "-o", binaries, "./cmd/api", "./cmd/admin", "./cmd/sluice")
	command.Dir = ".."
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // as they are released
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the binaries: %w\n%s", err, output)
	}
	return nil
})

type process struct {
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{}
	told           sync.Once // to stop: a second signal would end it at once
}

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// spawn starts a binary without our environment but PATH, and kills it when the test ends.
func spawn(t *testing.T, env []string, binary string, args ...string) *process {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, binary), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...) // of two that are equal the last one counts
	cmd.Dir = binaries
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", binary, err)
	}
	go func() {
		_ = cmd.Wait() // status reads how it ended
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if it has ended
		<-p.ended
		if t.Failed() {
			t.Logf("%s wrote to standard error:\n%s", binary, p.stderr.String())
		}
	})
	return p
}

func (p *process) status(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // makes it write what it waits for
		<-p.ended
		t.Fatalf("%s did not end within %s", p.cmd.Path, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.told.Do(func() {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatalf("send SIGTERM to %s: %v", p.cmd.Path, err)
		}
	})
}

func (p *process) signal(t *testing.T, which os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(which); err != nil {
		t.Fatalf("send %v to %s: %v", which, p.cmd.Path, err)
	}
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	p.terminate(t)
	if status := p.status(t); status != 0 {
		t.Errorf("%s ended with status %d after SIGTERM, want 0; it wrote:\n%s", p.cmd.Path, status, p.stderr.String())
	}
}

func (p *process) await(t *testing.T, from *output, pattern *regexp.Regexp) []string {
	t.Helper()
	var match []string
	eventually(t, patience, fmt.Sprintf("%s to write %s", p.cmd.Path, pattern), func() bool {
		match = pattern.FindStringSubmatch(from.String())
		select {
		case <-p.ended:
			if match == nil {
				t.Fatalf("%s ended with status %d before it wrote %s:\n%s",
					p.cmd.Path, p.cmd.ProcessState.ExitCode(), pattern, p.stderr.String())
			}
		default:
		}
		return match != nil
	})
	return match
}

type result struct {
	status         int
	stdout, stderr string
}

func run(t *testing.T, env []string, binary string, args ...string) result {
	t.Helper()
	p := spawn(t, env, binary, args...)
	status := p.status(t)
	return result{status, p.stdout.String(), p.stderr.String()}
}

func admin(t *testing.T, database string, args ...string) string {
	t.Helper()
	r := run(t, []string{"SLUICE_DATABASE_URL=" + database}, "admin", args...)
	if r.status != 0 {
		t.Fatalf("admin %s: status %d\n%s", strings.Join(args, " "), r.status, r.stderr)
	}
	return r.stdout
}

type tenant struct{ database, slug, key string }

func newTenant(t *testing.T, rules string) tenant {
	t.Helper()
	return newTenantIn(t, devdbtest.Postgres(t), rules)
}

func newTenantIn(t *testing.T, database, rules string) tenant {
	t.Helper()
	admin(t, database, "create-tenant", "--slug", "acme", "--name", "Acme")
	key := admin(t, database, "create-key", "--tenant", "acme", "--name", "ci", "--permissions", "check,explain")
	tn := tenant{database, "acme", strings.TrimSpace(key)}
	tn.apply(t, rules)
	return tn
}

func (tn tenant) apply(t *testing.T, rules string, flags ...string) string {
	t.Helper()
	args := append([]string{"apply", "--tenant", tn.slug, "-f", writeRules(t, rules)}, flags...)
	return admin(t, tn.database, args...)
}

func writeRules(t *testing.T, rules string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(name, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

type api struct {
	*process
	checks, metrics string // host:port
	key             string
	client          *http.Client
}

var answeringChecks = regexp.MustCompile(`"msg":"answering checks","check_addr":"([^"]+)","metrics_addr":"([^"]+)"`)

// startAPI waits until a process is ready, which must stop cleanly at the end of the test.
func (tn tenant) startAPI(t *testing.T, redisURL string, options ...string) *api {
	t.Helper()
	a := tn.spawnAPI(t, redisURL, options...)
	t.Cleanup(func() { a.stop(t) })
	eventually(t, patience, "the api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
	return a
}

func (tn tenant) spawnAPI(t *testing.T, redisURL string, options ...string) *api {
	t.Helper()
	p := spawn(t, tn.apiEnvironment(redisURL), "api", options...)
	addresses := p.await(t, &p.stderr, answeringChecks)
	return &api{process: p, checks: addresses[1], metrics: addresses[2], key: tn.key, client: newClient(t)}
}

func (tn tenant) apiEnvironment(redisURL string) []string {
	return []string{
		"SLUICE_DATABASE_URL=" + tn.database, "SLUICE_REDIS_URL=" + redisURL,
		"SLUICE_CHECK_ADDR=127.0.0.1:0", "SLUICE_METRICS_ADDR=127.0.0.1:0", "SLUICE_LOG_FORMAT=json",
		// A slow machine is not an outage.
		"SLUICE_SHUTDOWN_TIMEOUT=1m", "SLUICE_STORE_BUDGET=5s",
	}
}

func (tn tenant) startAPIs(t *testing.T, n int, redisURL string, options ...string) []*api {
	t.Helper()
	apis := make([]*api, n)
	for i := range apis {
		apis[i] = tn.startAPI(t, redisURL, options...)
	}
	return apis
}

// eventually polls until a condition holds. It fails after limit of processor time, or ten times as long in any
// case.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	began, watch := time.Now(), awake.Start()
	defer watch.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		if watch.Now() > limit || time.Since(began) > 10*limit {
			t.Fatalf("waited %s in vain for %s", limit, what)
		}
		<-tick.C
	}
}

func quantile(times []time.Duration, fraction float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[int(fraction*float64(len(sorted)-1))]
}
