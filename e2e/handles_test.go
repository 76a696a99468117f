package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// leaseKey makes a key that may hold tokens, and ask.
func (tn tenant) leaseKey(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(admin(t, tn.database, "create-key", "--tenant", tn.slug, "--name", "handles", "--permissions", "check,lease"))
}

// passed is a check that a spender let pass, in microseconds since 1970.
type passed struct {
	asked, decided int64
	source         string
}

// startSpender starts a process that spends on a handle. It is killed when the test ends, unless somebody did before.
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

// passed reads what a spender wrote. What a kill cut off is left out.
func (p *process) passed(t *testing.T) (all []passed) {
	t.Helper()
	for line := range strings.Lines(p.stdout.String()) {
		var one passed
		if _, err := fmt.Sscanf(line, "%d %d %s\n", &one.asked, &one.decided, &one.source); err == nil && strings.HasSuffix(line, "\n") {
			all = append(all, one)
		}
	}
	return all
}

func bySource(all []passed, source sluice.Source) (n int) {
	for _, one := range all {
		if one.source == string(source) {
			n++
		}
	}
	return n
}

// TestClientsThatHoldTokensKeepTheLimitThoughOneIsKilled: four processes ask for three times the limit on handles, one is killed
// with what it holds, and no interval has more than one bucket would admit.
func TestClientsThatHoldTokensKeepTheLimitThoughOneIsKilled(t *testing.T) {
	t.Parallel()
	const rate, burst, processes = 300, 300, 4
	tn := newTenant(t, `
rules:
  - {key_pattern: "user:{user_id}", rate: 300/second, burst_capacity: 300}
`)
	a := tn.startAPI(t, devdbtest.Redis(t).URL(), unhurried)
	key := tn.leaseKey(t)
	binary := filepath.Join(t.TempDir(), "spender")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./spender").CombinedOutput(); err != nil {
		t.Fatalf("build the spender: %v\n%s", err, output)
	}
	var spenders []*process
	for range processes {
		spenders = append(spenders, startSpender(t, binary, a, key, 4*time.Millisecond))
	}
	spent := func(p *process) int { return bySource(p.passed(t), sluice.FromLease) }
	for i, p := range spenders {
		eventually(t, patience, fmt.Sprintf("process %d to spend leased tokens", i), func() bool { return spent(p) > 100 })
	}
	spenders[0].kill()
	before := spent(spenders[1])
	eventually(t, patience, "the others to go on", func() bool { return spent(spenders[1]) > before+300 })
	var all []passed
	for _, p := range spenders {
		p.kill()
		all = append(all, p.passed(t)...)
	}

	// What was decided is replayed through one bucket. When it was admitted is known only to lie between asked and decided.
	slices.SortFunc(all, func(a, b passed) int { return cmp.Compare(a.decided, b.decided) })
	longest := int64(0)
	for _, one := range all {
		longest = max(longest, one.decided-one.asked)
	}
	slack := 1 + rate*float64(longest)/1e6
	level, lowest, at := float64(burst), float64(burst), all[0].decided
	for _, one := range all {
		level = min(burst, level+rate*float64(one.decided-at)/1e6) - 1
		lowest, at = min(lowest, level), one.decided
	}
	seconds := float64(at-all[0].decided) / 1e6
	t.Logf("%d passed in %.1f s, %d of them on leased tokens; the bucket's lowest level is %.1f, and %.1f is below what can be told",
		len(all), seconds, bySource(all, sluice.FromLease), lowest, slack)
	if lowest < -slack {
		t.Errorf("one bucket would lack %.1f tokens", -lowest)
	}
	if least := rate * seconds / 2; float64(len(all)) < least {
		t.Errorf("only %d passed, of at least %.0f", len(all), least)
	}
}

// checkUntil checks until a decision is as wanted, and returns how many handles decided themselves on the way.
func checkUntil(t *testing.T, h *sluice.Handle, limit time.Duration, what string, wanted func(*sluice.Decision) bool) (allowed, denied int) {
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

// TestHandlesThatMayNotGoOnStopWithinTwoSeconds: when their key is revoked or their tenant suspended, however much they hold.
func TestHandlesThatMayNotGoOnStopWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	for what, path := range map[string]func(key string) string{
		"the key is revoked":      func(key string) string { return "/api-keys/" + strings.Split(key, "_")[1] + "/revoke" },
		"the tenant is suspended": func(string) string { return "/suspend" },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			redis := devdbtest.Redis(t)
			tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 100000/second, burst_capacity: 100000}\n")
			a := tn.startAPI(t, redis.URL(), unhurried)
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

// TestHandlesOutliveTheirServer: when the server is gone the failure mode decides, and when it is back the handle holds tokens again.
func TestHandlesOutliveTheirServer(t *testing.T) {
	t.Parallel()
	redis := devdbtest.Redis(t).URL()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1000/second, burst_capacity: 1000}\n")
	a := tn.spawnAPI(t, redis, unhurried)
	client := a.newSDK(t, sluice.Config{Key: tn.leaseKey(t), FailureMode: sluice.Closed})
	h, err := client.Handle(sluice.Check{UserID: "42"})
	if err != nil {
		t.Fatal(err)
	}
	checkUntil(t, h, patience, "a check on leased tokens", fromLease)
	a.kill()
	checkUntil(t, h, patience, "the failure mode", fromFailureMode)
	again := tn.spawnAPI(t, redis, unhurried, "--check-addr", a.checks)
	checkUntil(t, h, patience, "a check on leased tokens of the next server", fromLease)
	again.stop(t)
}

// TestWhatHandlesDecideIsCounted: each check is counted once by the server, whoever decided it.
func TestWhatHandlesDecideIsCounted(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 20/second, burst_capacity: 40}\n")
	a := tn.startAPI(t, devdbtest.Redis(t).URL(), unhurried)
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
	if lost := client.LeaseStats().Unreported; lost != 0 {
		t.Fatalf("%d decisions were reported in a request that was not answered", lost)
	}
	counted := func(name string) int { return int(a.metric(t, name)) }
	if got := counted("sluice_lessee_allowed_total"); got != ownAllowed {
		t.Errorf("the server counts %d allowed by handles, want %d", got, ownAllowed)
	}
	if got := counted("sluice_lessee_denied_total"); got != ownDenied {
		t.Errorf("the server counts %d denied by handles, want %d", got, ownDenied)
	}
	if got := counted("sluice_recorder_violations_total"); got != denied {
		t.Errorf("the server recorded %d violations, want %d", got, denied)
	}
	t.Logf("of %d checks handles allowed %d and denied %d; %d were denied", checks, ownAllowed, ownDenied, denied)
}
