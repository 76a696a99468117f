package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	neighbourPassword = "a password of the benchmark"
	quietAlerts       = 4 // so that enough webhooks are timed: each leaves within a second
	farBandwidth      = 125 << 20
)

// neighbourSettings are where the database is. The target holds where its processors are not the admin process's, as in
// production; a link between them stands for that.
var neighbourSettings = []struct {
	what   string
	delay  time.Duration // there and back
	target float64       // as ratioLine takes it
}{
	{"database behind 2 ms", 2 * time.Millisecond, -2},
	{"database on this machine", 0, 0},
}

// neighbours compares the latency of one tenant's requests alone and while two others ask for all that they may.
func neighbours(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	store, err := loadViolations(ctx, s.postgres, "neighbours", time.Now().UTC().Truncate(time.Minute), *violationRows, 1)
	if err != nil {
		return nil, err
	}
	store.Close()
	n := &neighbourhood{stage: s, database: s.postgres.URL("neighbours"), client: loopClient()}
	for _, name := range []string{"quiet", "ours", "greedy"} { // ours has the violations
		if err := n.settle(ctx, name); err != nil {
			return nil, err
		}
	}
	for _, setting := range neighbourSettings {
		measured, err := n.compare(ctx, setting.delay, rounds, 3*round)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting.what, err)
		}
		for _, m := range measured {
			lines = append(lines,
				ratioLine(fmt.Sprintf("%s: p99 of %s, ms", setting.what, m.what), "%.1f",
					late99(m.alone.took), late99(m.beside.took), setting.target),
				line{
					what:     fmt.Sprintf("  not answered, of %d and %d", len(m.alone.took), len(m.beside.took)),
					baseline: fmt.Sprint(m.alone.failed), ours: fmt.Sprint(m.beside.failed), target: "0", met: yesNo(m.beside.failed == 0),
				})
		}
	}
	return lines, nil
}

// neighbourhood has three tenants and one admin process.
type neighbourhood struct {
	*stage
	database string
	client   *http.Client
	base     string // of the process's URLs
	tenants  []*neighbour
}

// neighbour is a tenant with a key for automation and a person who signs in.
type neighbour struct {
	slug, key, email string
	cookie           string // of the person's session
	rule             int64  // with a bucket of each user
	alerts           []int64
}

// settle makes a tenant by commands. Each has a person of its own, since a person's share is one in all tenants.
func (n *neighbourhood) settle(ctx context.Context, slug string) (err error) {
	t := &neighbour{slug: slug, email: slug + "@example.com"}
	if slug != "ours" {
		if _, err := n.admin(ctx, "", "create-tenant", "--slug", slug, "--name", slug, "--default-plan", "free"); err != nil {
			return err
		}
	}
	if t.key, err = n.admin(ctx, "", "create-key", "--tenant", slug, "--name", "bench", "--permissions", "manage"); err != nil {
		return err
	}
	_, err = n.admin(ctx, neighbourPassword, "create-admin", "--email", t.email)
	n.tenants = append(n.tenants, t)
	return err
}

// admin runs a command with an input and returns what it prints.
func (n *neighbourhood) admin(ctx context.Context, input string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(n.dir, "admin"), arguments...)
	cmd.Env = []string{"SLUICE_DATABASE_URL=" + n.database}
	cmd.Stdin = strings.NewReader(input + "\n")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("admin %s: %w", arguments[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// comparison is how one kind of request fared.
type comparison struct {
	what          string
	alone, beside answers
}

// answers are how long requests took, in milliseconds, and how many failed.
type answers struct {
	took   []float64
	failed int
}

// compare starts an admin process and times the quiet tenant's requests, alone and beside the others in turn.
func (n *neighbourhood) compare(ctx context.Context, delay time.Duration, rounds int, round time.Duration) ([]*comparison, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	database := n.database
	if delay > 0 {
		at, err := url.Parse(database)
		if err != nil {
			return nil, fmt.Errorf("read the database's URL: %w", err)
		}
		if at.Host, err = behindLink(ctx, at.Host, delay, farBandwidth); err != nil {
			return nil, err
		}
		database = at.String()
	}
	p, err := n.startAdmin(ctx, database, "SLUICE_REDIS_URL="+n.redis.URL(), "SLUICE_WEBHOOK_ALLOW=127.0.0.1/32")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	n.base = "http://" + p.addr
	hooks := newHooks()
	defer hooks.close()
	for _, t := range n.tenants {
		if err := n.furnish(ctx, t, hooks); err != nil {
			return nil, err
		}
	}
	victims := n.victims(n.tenants[0], hooks)
	measured := make([]*comparison, len(victims))
	for i := range victims {
		measured[i] = &comparison{what: victims[i].what}
	}
	for range rounds {
		if err := timeVictims(ctx, victims, round, func(i int) *answers { return &measured[i].alone }); err != nil {
			return nil, err
		}
		loud, quiet := context.WithCancel(ctx)
		var loops sync.WaitGroup
		for _, t := range n.tenants[1:] {
			n.beGreedy(loud, t, &loops)
		}
		awaitMoment(time.Now().Add(round / 3)) // the load builds up
		err := timeVictims(ctx, victims, round, func(i int) *answers { return &measured[i].beside })
		quiet()
		loops.Wait()
		if err != nil {
			return nil, err
		}
		awaitMoment(time.Now().Add(round / 3)) // what was under way ends
	}
	return measured, nil
}

// victim is a request of the quiet tenant that is repeated, one at a time in each of its loops.
type victim struct {
	what string
	loop []func(ctx context.Context) (took time.Duration, err error)
}

// timeVictims repeats each request for the length of a round.
func timeVictims(ctx context.Context, victims []victim, round time.Duration, to func(i int) *answers) error {
	var mu sync.Mutex
	var loops sync.WaitGroup
	end := time.Now().Add(round)
	for i := range victims {
		for _, once := range victims[i].loop {
			loops.Go(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					took, err := once(ctx)
					mu.Lock()
					a := to(i)
					a.took = append(a.took, float64(took.Microseconds())/1000)
					if err != nil {
						a.failed++
					}
					mu.Unlock()
				}
			})
		}
	}
	loops.Wait()
	return context.Cause(ctx)
}

// victims are what the quiet tenant asks for.
func (n *neighbourhood) victims(t *neighbour, hooks *hooks) []victim {
	timed := func(ask func(ctx context.Context) (want int, q adminRequest)) []func(context.Context) (time.Duration, error) {
		return []func(context.Context) (time.Duration, error){func(ctx context.Context) (time.Duration, error) {
			want, q := ask(ctx)
			began := time.Now()
			got, err := n.ask(ctx, t, q)
			if err == nil && got.status != want {
				err = fmt.Errorf("%s %s: status %d", q.method, q.path, got.status)
			}
			return time.Since(began), err
		}}
	}
	signIn := func(email, password string) adminRequest {
		return adminRequest{method: "POST", path: "/api/v1/session", mediaType: jsonType, body: fmt.Sprintf(`{"email":%q,"password":%q}`, email, password)}
	}
	victims := []victim{
		{"reads", timed(func(context.Context) (int, adminRequest) {
			return http.StatusOK, adminRequest{method: "GET", path: t.path("/rules")}
		})},
		{"writes", timed(func(context.Context) (int, adminRequest) {
			return http.StatusCreated, post(t.path("/plans"), fmt.Sprintf(`{"name":"%d"}`, time.Now().UnixNano()))
		})},
		{"sign-ins", timed(func(context.Context) (int, adminRequest) { return http.StatusOK, signIn(t.email, neighbourPassword) })},
		// Each has an address of its own, because failures for one address have to wait.
		{"sign-ins with a wrong password", timed(func(context.Context) (int, adminRequest) {
			return http.StatusUnauthorized, signIn(fmt.Sprintf("%d@example.com", time.Now().UnixNano()), "a wrong password")
		})},
		{what: "webhooks, test to arrival"},
	}
	last := &victims[len(victims)-1]
	for _, alert := range t.alerts {
		last.loop = append(last.loop, func(ctx context.Context) (time.Duration, error) { return n.testAlert(ctx, t, alert, hooks) })
	}
	return victims
}

// testAlert returns how long it took from the request for a test to its webhook's arrival.
func (n *neighbourhood) testAlert(ctx context.Context, t *neighbour, alert int64, hooks *hooks) (time.Duration, error) {
	test := post(t.path(fmt.Sprintf("/alerts/%d/test", alert)), "")
	test.asPerson = true
	for {
		began := time.Now()
		got, err := n.ask(ctx, t, test)
		switch {
		case err != nil:
			return time.Since(began), err
		case got.status == http.StatusConflict: // that the test before arrived is not written down yet
			awaitMoment(time.Now().Add(20 * time.Millisecond))
			continue
		case got.status != http.StatusCreated:
			return time.Since(began), fmt.Errorf("test an alert: status %d", got.status)
		}
		at, err := hooks.await(ctx, alert)
		return at.Sub(began), err
	}
}

// hooks receive webhooks: those of the quiet tenant are noted, others get no answer.
type hooks struct {
	quiet, blackHole *httptest.Server
	closing          chan struct{}
	arrived          map[int64]chan time.Time
}

func newHooks() *hooks {
	h := &hooks{closing: make(chan struct{}), arrived: map[int64]chan time.Time{}}
	h.quiet = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Now()
		if alert, err := alertOf(r.Body); err == nil {
			select {
			case h.arrived[alert] <- at:
			default:
			}
		}
	}))
	h.blackHole = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-h.closing:
		case <-r.Context().Done():
		}
	}))
	return h
}

// await returns when the webhook of an alert arrived.
func (h *hooks) await(ctx context.Context, alert int64) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("a webhook did not arrive within 30 s"))
	defer cancel()
	select {
	case at := <-h.arrived[alert]:
		return at, nil
	case <-ctx.Done():
		return time.Now(), context.Cause(ctx)
	}
}

func (h *hooks) close() {
	close(h.closing)
	h.quiet.Close()
	h.blackHole.Close()
}

func late99(took []float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
