package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// dayConfig is the rules of each tenant of a day. Its shadow rule is a stricter candidate.
const dayConfig = `rules:
  - {key_pattern: "user:{user_id}", name: "per user", rate: 50/second, burst_capacity: 100}
  - {key_pattern: "ip:{ip}", name: "per address", rate: 200/second, burst_capacity: 400}
  - {key_pattern: global, name: "all together", rate: 20000/second, burst_capacity: 20000}
  - {key_pattern: "user:{user_id}", name: "candidate", rate: 30/second, burst_capacity: 40, mode: shadow}
  - {key_pattern: "endpoint:/api/search", name: "search", rate: 500/second, burst_capacity: 500, adapt: {backend: search, floor_percent: 20, p99_ms: 300}}
`

// dayTenants are the tenants whose services ask, and how many checks a second each asks around noon.
var dayTenants = []struct {
	slug string
	noon float64
}{{"shop", 900}, {"media", 450}, {"partners", 150}}

const (
	dayStep        = 2 * time.Second        // the rate of checks changes so often
	dayConnections = 8                      // of each tenant
	attackRate     = 600                    // checks a second, by ten users of the first tenant
	outage         = 4 * time.Second        // of Redis
	dayBudget      = 250 * time.Millisecond // a busy machine's Redis keeps within it, and the outage does not
)

// oneDay shows what dashboards are for, on a small stage: tenants whose checks rise and fall, an attack, a short outage of Redis, a client
// that decides itself, and an admin API that a script asks too much of. It compares nothing; scripts/dashboards.sh draws what a
// Prometheus scraped meanwhile. A day is as long as 30 rounds of each.
func oneDay(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	d := &day{stage: s, length: time.Duration(30*rounds) * round}
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	var parts sync.WaitGroup
	var failed failures
	for i := range dayTenants {
		parts.Go(func() { failed.add(d.ask(ctx, i)) })
	}
	parts.Go(func() { failed.add(d.attack(ctx)) })
	parts.Go(func() { failed.add(d.freezeRedis(ctx)) })
	parts.Go(func() { failed.add(d.decide(ctx)) })
	parts.Go(func() { failed.add(d.report(ctx)) })
	parts.Go(func() { failed.add(d.administrate(ctx)) })
	parts.Wait()
	return []line{note("length of the day, s", "%.0f", 0, d.length.Seconds())}, errors.Join(failed.all()...)
}

// failures are the errors of several goroutines.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

func (f *failures) all() []error { return f.errs }

// day is two api processes and an admin process.
type day struct {
	*stage
	length time.Duration
	began  time.Time
	apis   []*process
	admin  *process
	tokens []string // of the tenants
}

func (d *day) open(ctx context.Context) error {
	database, err := d.database(ctx, "a_day")
	if err != nil {
		return err
	}
	for _, t := range dayTenants {
		settings := rules.DefaultSettings()
		settings.RecordDays = 1
		token, err := createTenantAs(ctx, database, rules.Tenant{Slug: t.slug, Name: t.slug, Settings: settings}, dayConfig,
			auth.PermissionCheck, auth.PermissionLease, auth.PermissionReport, auth.PermissionRead)
		if err != nil {
			return err
		}
		d.tokens = append(d.tokens, token)
	}
	for range 2 {
		api, err := d.startAPI(ctx, database, d.redis.URL(), "SLUICE_STORE_BUDGET="+dayBudget.String())
		if err != nil {
			return err
		}
		d.apis = append(d.apis, api)
	}
	if d.admin, err = d.startAdmin(ctx, database, "SLUICE_REDIS_URL="+d.redis.URL()); err != nil {
		return err
	}
	for i, token := range d.tokens {
		if err := d.apis[i%2].awaitCheck(ctx, singleCheck(token, 0)); err != nil {
			return err
		}
	}
	d.began = time.Now()
	return nil
}

// hour is how much of the day has passed, from 0 to 1.
func (d *day) hour() float64 { return float64(time.Since(d.began)) / float64(d.length) }

// between waits until a part of the day begins, and returns how long it is.
func (d *day) between(from, until float64) time.Duration {
	awaitMoment(d.began.Add(time.Duration(from * float64(d.length))))
	return time.Duration((until - from) * float64(d.length))
}

func (d *day) addrs() (all []string) {
	for _, api := range d.apis {
		all = append(all, api.addr)
	}
	return all
}

// ask asks a tenant's checks, most of them in the middle of the day.
func (d *day) ask(ctx context.Context, tenant int) error {
	l := load{d.addrs(), zipfCrowd(d.tokens[tenant])}
	for d.hour() < 1 && ctx.Err() == nil {
		rate := dayTenants[tenant].noon * (0.25 + 0.75*math.Sin(math.Pi*min(1, d.hour())))
		if _, err := l.open(ctx, rate, dayConnections, dayStep); err != nil {
			return fmt.Errorf("ask for %s: %w", dayTenants[tenant].slug, err)
		}
	}
	return ctx.Err()
}

func (d *day) attack(ctx context.Context) error {
	length := d.between(0.3, 0.5)
	_, err := load{d.addrs(), attack(d.tokens[0])}.open(ctx, attackRate, dayConnections, length)
	return err
}

func (d *day) freezeRedis(ctx context.Context) error {
	d.between(0.7, 1)
	if err := d.redis.Freeze(); err != nil {
		return err
	}
	awaitMoment(time.Now().Add(outage))
	return errors.Join(d.redis.Thaw(), ctx.Err())
}

// decide lets a client decide checks of one busy user itself.
func (d *day) decide(ctx context.Context) error {
	length := d.between(0.15, 0.65)
	client, err := sluice.New(sluice.Config{URL: "http://" + d.apis[0].addr, Key: d.tokens[1]})
	if err != nil {
		return err
	}
	defer client.Close()
	handle, err := client.Handle(sluice.Check{UserID: "a busy one"})
	if err != nil {
		return err
	}
	for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; awaitMoment(time.Now().Add(12 * time.Millisecond)) {
		handle.Try()
	}
	return ctx.Err()
}

// report tells how the backend of a tenant does: it is slow around noon.
func (d *day) report(ctx context.Context) error {
	client, err := sluice.New(sluice.Config{URL: "http://" + d.apis[1].addr, Key: d.tokens[2]})
	if err != nil {
		return err
	}
	defer client.Close()
	backend := client.NewReporter("search")
	for hour := d.hour(); hour < 1 && ctx.Err() == nil; hour = d.hour() {
		latency := 50 * time.Millisecond
		if hour > 0.25 && hour < 0.5 {
			latency = time.Second
		}
		backend.Observe(latency, false)
		awaitMoment(time.Now().Add(10 * time.Millisecond))
	}
	return ctx.Err()
}

// administrate reads rules and violations every few seconds, and for a while as fast as the server answers.
func (d *day) administrate(ctx context.Context) error {
	paths := []string{"/rules", "/violations?limit=200", "/violations/export", "/export"}
	for i := 0; d.hour() < 1 && ctx.Err() == nil; i++ {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.admin.addr+"/api/v1/tenants/shop"+paths[i%len(paths)], nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+d.tokens[0])
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return fmt.Errorf("ask the admin API: %w", err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return fmt.Errorf("read what the admin API answers: %w", err)
		}
		if hour := d.hour(); hour < 0.5 || hour > 0.65 {
			awaitMoment(time.Now().Add(200 * time.Millisecond))
		}
	}
	return ctx.Err()
}
