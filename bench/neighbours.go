package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	neighbourPassword = "a password of the benchmark"
	// signsInEmail is the address of the account that signs in all the time.
	signsInEmail = "signs-in@example.com"
	quietAlerts  = 4  // each has a webhook in flight
	roundLength  = 10 // in rounds of the other sections
	farBandwidth = 125 << 20
)

// neighbourSetting is where the database is.
type neighbourSetting struct {
	what   string
	delay  time.Duration // there and back
	target float64       // as ratioLine takes it
}

// farNeighbours has the target: the database's processors are not the admin process's, as in production; a link between
// them stands for that.
func farNeighbours(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return neighbours(ctx, neighbourSetting{"database behind 2 ms", 2 * time.Millisecond, -2}, rounds, round)
}

func nearNeighbours(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return neighbours(ctx, neighbourSetting{"database on this machine", 0, 0}, rounds, round)
}

// neighbours compares the latency of one tenant's requests alone and while two others ask for all that they may.
func neighbours(ctx context.Context, setting neighbourSetting, rounds int, round time.Duration) ([]line, error) {
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
	if err := n.allowPlans(ctx, "quiet"); err != nil {
		return nil, err
	}
	if _, err := n.admin(ctx, neighbourPassword, "create-admin", "--email", signsInEmail); err != nil {
		return nil, err
	}
	measured, err := n.compare(ctx, setting.delay, rounds, roundLength*round)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting.what, err)
	}
	var lines []line
	for _, c := range measured {
		lines = append(lines, c.lines(setting.what, setting.target)...)
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

// neighbour is a tenant with a key for automation.
type neighbour struct {
	Slug, Key string
	Rule      int64 // with a bucket of each user
	Alerts    []int64
}

// settle makes a tenant by commands.
func (n *neighbourhood) settle(ctx context.Context, slug string) (err error) {
	t := &neighbour{Slug: slug}
	if slug != "ours" {
		if _, err := n.admin(ctx, "", "create-tenant", "--slug", slug, "--name", slug, "--default-plan", "free"); err != nil {
			return err
		}
	}
	if t.Key, err = n.admin(ctx, "", "create-key", "--tenant", slug, "--name", "bench", "--permissions", "manage,alerts"); err != nil {
		return err
	}
	n.tenants = append(n.tenants, t)
	return nil
}

// allowPlans raises a tenant's quota, because its writes make more plans than a tenant usually has.
func (n *neighbourhood) allowPlans(ctx context.Context, slug string) error {
	connection, err := pgx.Connect(ctx, n.database)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close(ctx) }()
	_, err = connection.Exec(ctx, "INSERT INTO tenant_quota (tenant_id, plans) SELECT tenant_id, 1000000 FROM tenant WHERE slug = $1", slug)
	if err != nil {
		return fmt.Errorf("raise the quota of plans: %w", err)
	}
	return nil
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

// comparison has the latencies of one kind of request.
type comparison struct {
	what          string
	alone, beside answers
}

// lines returns the rows of the table for a setting.
func (c *comparison) lines(setting string, target float64) []line {
	c.alone.sort()
	c.beside.sort()
	return []line{
		ratioLine(setting+": p99 of "+c.what+", ms", "%.1f", c.alone.percentile(99), c.beside.percentile(99), target),
		note("  median, ms", "%.1f", c.alone.percentile(50), c.beside.percentile(50)),
		note("  p90, ms", "%.1f", c.alone.percentile(90), c.beside.percentile(90)),
		note("  p95, ms", "%.1f", c.alone.percentile(95), c.beside.percentile(95)),
		note("  slowest, ms", "%.1f", c.alone.percentile(100), c.beside.percentile(100)),
		{
			what:     fmt.Sprintf("  failed, of %d and %d", len(c.alone.took), len(c.beside.took)),
			baseline: fmt.Sprint(c.alone.failed), ours: fmt.Sprint(c.beside.failed),
			target: "0", met: yesNo(c.alone.failed+c.beside.failed == 0),
		},
	}
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
	p, err := n.startAdmin(ctx, database, "SLUICE_REDIS_URL="+n.redis.URL(), "SLUICE_WEBHOOK_ALLOW=127.0.0.1/32",
		"SLUICE_TRUSTED_PROXIES=127.0.0.1/32") // whom it tells apart by the addresses that victims' requests have
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
	var measured []*comparison // the victims of one kind share one
	of := make([]*comparison, len(victims))
	for i, v := range victims {
		if i == 0 || v.what != victims[i-1].what {
			measured = append(measured, &comparison{what: v.what})
		}
		of[i] = measured[len(measured)-1]
	}
	count := func(length time.Duration, to func(i int) *answers) error {
		return timeVictims(ctx, victims, length, to)
	}
	uncounted := func(int) *answers { return new(answers) } // the tenant goes on meanwhile, so that no round begins with idle connections
	for range rounds {
		// What was under way ends, and the Watcher reads what was imported.
		if err := count(round/2, uncounted); err != nil {
			return nil, err
		}
		if err := count(round, func(i int) *answers { return &of[i].alone }); err != nil {
			return nil, err
		}
		stopLoad, err := n.startGreed(ctx)
		if err != nil {
			return nil, err
		}
		err = count(round/3, uncounted) // the load builds up
		if err == nil {
			err = count(round, func(i int) *answers { return &of[i].beside })
		}
		if err := errors.Join(err, stopLoad()); err != nil {
			return nil, err
		}
	}
	return measured, nil
}
