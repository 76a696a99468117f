package e2e_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func (tn tenant) leaseKey(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(admin(t, tn.database, "create-key", "--tenant", tn.slug, "--name", "handles",
		"--permissions", "check,lease"))
}

func startSpender(t *testing.T, binary string, a *api, key string, pause time.Duration) *process {
	t.Helper()
	p := &process{cmd: exec.Command(binary, "http://"+a.checks, key, "42", pause.String()), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // it is killed
		close(p.ended)
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

func (p *process) onLeases() int {
	return strings.Count(p.stdout.String(), " "+string(sluice.FromLease)+"\n")
}

// passed leaves a line out that a kill cut off.
func (p *process) passed() (all []admittedCheck) {
	for line := range strings.Lines(p.stdout.String()) {
		var asked, decided int64 // in microseconds since 1970
		var source string
		if _, err := fmt.Sscanf(line, "%d %d %s\n", &asked, &decided, &source); err == nil &&
			strings.HasSuffix(line, "\n") {
			all = append(all, admittedCheck{
				asked:   time.Duration(asked) * time.Microsecond,
				decided: time.Duration(decided) * time.Microsecond,
			})
		}
	}
	return all
}

// TestLeasedTokensAreSpentOnceWhateverHappensToAProcess gives the reasons.
func TestClientsThatHoldTokensKeepTheLimit(t *testing.T) {
	t.Parallel()
	t.Run("one is killed", func(t *testing.T) {
		t.Parallel()
		s := startSpenders(t, func(_, unreported float64) bool { return unreported > 50 })
		s.all[0].kill()
		s.exhaust(t)
		enough := s.othersPassed() + 2*spendersRate // two seconds, by the limit
		eventually(t, patience, "the others to go on", func() bool { return s.othersPassed() >= enough })
		s.wantLimit(t)
	})
	t.Run("one is stopped for a while", func(t *testing.T) {
		t.Parallel()
		s := startSpenders(t, func(held, _ float64) bool { return held > 80 })
		victim := s.all[0]
		victim.signal(t, syscall.SIGSTOP)
		eventually(t, patience, "the bucket to be full", func() bool {
			got := s.api.want(t, `{"user_id":"42","cost":0}`, http.StatusOK)
			return got.remaining(t, "user:{user_id}") == spendersBurst
		})
		before := victim.onLeases()
		victim.signal(t, syscall.SIGCONT)
		s.exhaust(t)
		eventually(t, patience, "the process to spend leased tokens again",
			func() bool { return victim.onLeases() > before+75 })
		s.wantLimit(t)
	})
}

const spendersRate, spendersBurst = 100, 1200

// spenders are processes that spend on a handle of the same bucket. The first is the victim.
type spenders struct {
	api *api
	add func(pause time.Duration)
	all []*process
}

func startSpenders(t *testing.T, wanted func(held, unreported float64) bool) *spenders {
	t.Helper()
	tn := newTenant(t, `
rules:
  - {key_pattern: "user:{user_id}", rate: 100/second, burst_capacity: 1200}
`)
	a := tn.startAPI(t, devdbtest.Redis(t).URL())
	key := tn.leaseKey(t)
	binary := filepath.Join(t.TempDir(), "spender")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"./spender").CombinedOutput(); err != nil {
		t.Fatalf("build the spender: %v\n%s", err, output)
	}
	s := &spenders{api: a}
	s.add = func(pause time.Duration) { s.all = append(s.all, startSpender(t, binary, a, key, pause)) }
	s.add(time.Millisecond)
	eventually(t, patience, "the process to have leased tokens", func() bool {
		tokens := func(fate string) float64 { return a.metric(t, "sluice_lessee_tokens_"+fate+"_total") }
		lent, reported, returned := tokens("lent"), tokens("spent"), tokens("returned")
		spent := float64(s.all[0].onLeases())
		return wanted(lent-spent-returned, spent-reported)
	})
	return s
}

func (s *spenders) exhaust(t *testing.T) {
	t.Helper()
	for range 3 {
		s.add(4 * time.Millisecond)
	}
	denied := func() float64 { return s.api.metric(t, "sluice_lessee_denied_total") }
	before := denied()
	eventually(t, patience, "the bucket to be empty", func() bool { return denied() > before+20 })
}

func (s *spenders) othersPassed() (n int) {
	for _, p := range s.all[1:] {
		n += strings.Count(p.stdout.String(), "\n")
	}
	return n
}

func (s *spenders) wantLimit(t *testing.T) {
	t.Helper()
	var all []admittedCheck
	for _, p := range s.all {
		p.kill()
		all = append(all, p.passed()...)
	}
	wantWithinLimit(t, all, spendersRate, spendersBurst, 0)
}

func checkUntil(t *testing.T, h *sluice.Handle, limit time.Duration, what string,
	wanted func(*sluice.Decision) bool,
) (allowed, denied int) {
	t.Helper()
	eventually(t, limit, what, func() bool {
		d, err := h.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case d.Source != sluice.FromLease:
		case d.Allowed:
			allowed++
		default:
			denied++
		}
		return wanted(&d)
	})
	return allowed, denied
}

func fromLease(d *sluice.Decision) bool { return d.Source == sluice.FromLease }

func fromFailureMode(d *sluice.Decision) bool { return d.Source == sluice.FromFailureMode }

func TestHandlesThatMayNotGoOnStopWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]func(key string) string{
		"the key is revoked": func(key string) string {
			return "/api-keys/" + strings.Split(key, "_")[1] +
				"/revoke"
		},
		"the tenant is suspended": func(string) string { return "/suspend" },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			redis := devdbtest.Redis(t)
			tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 100000/second, burst_capacity: "+
				"100000}\n")
			a := tn.startAPI(t, redis.URL())
			server := tn.startAdmin(t, redis.URL())
			server.signIn(t, tn.database)
			key := tn.leaseKey(t)
			client := a.newSDK(t, sluice.Config{Key: key, FailureMode: sluice.Closed})
			h, err := client.Handle(sluice.Check{UserID: "42"})
			if err != nil {
				t.Fatal(err)
			}
			checkUntil(t, h, patience, "a check on leased tokens", fromLease)
			server.want(t, http.StatusOK, http.MethodPost, path(key), "")
			checkUntil(t, h, propagation, "the handle to stop", fromFailureMode)
		})
	}
}

func TestHandlesOutliveTheirServer(t *testing.T) {
	t.Parallel()
	redis := devdbtest.Redis(t).URL()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1000/second, burst_capacity: 1000}\n")
	a := tn.spawnAPI(t, redis)
	client := a.newSDK(t, sluice.Config{Key: tn.leaseKey(t), FailureMode: sluice.Closed})
	h, err := client.Handle(sluice.Check{UserID: "42"})
	if err != nil {
		t.Fatal(err)
	}
	checkUntil(t, h, patience, "a check on leased tokens", fromLease)
	a.kill()
	checkUntil(t, h, patience, "the failure mode", fromFailureMode)
	again := tn.spawnAPI(t, redis, "--check-addr", a.checks)
	checkUntil(t, h, patience, "a check on leased tokens of the next server", fromLease)
	again.stop(t)
}

func TestWhatHandlesDecideIsCounted(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 20/second, burst_capacity: 40}\n")
	a := tn.startAPI(t, devdbtest.Redis(t).URL())
	client := a.newSDK(t, sluice.Config{Key: tn.leaseKey(t), DenialMemory: -1})
	h, err := client.Handle(sluice.Check{UserID: "42"})
	if err != nil {
		t.Fatal(err)
	}
	checks, denied, ownAllowed, ownDenied := 0, 0, 0, 0
	eventually(t, patience, "denials by the handle", func() bool {
		d, err := h.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checks++
		if !d.Allowed {
			denied++
		}
		switch {
		case !fromLease(&d):
		case d.Allowed:
			ownAllowed++
		default:
			ownDenied++
		}
		return ownAllowed > 20 && ownDenied > 20
	})
	client.Close() // reports the rest
	// The server may have counted what a request reported that timed out.
	lost := int(client.LeaseStats().Unreported)
	for name, want := range map[string]int{
		"sluice_lessee_allowed_total":      ownAllowed,
		"sluice_lessee_denied_total":       ownDenied,
		"sluice_recorder_violations_total": denied,
	} {
		if got := int(a.metric(t, name)); got < want-lost || got > want {
			t.Errorf("%s is %d, want %d, less at most %d", name, got, want, lost)
		}
	}
	t.Logf("of %d checks handles allowed %d and denied %d; %d were denied", checks, ownAllowed, ownDenied, denied)
}
