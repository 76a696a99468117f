package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func lately() time.Time { return time.Now().UTC().Truncate(time.Minute).Add(-10 * time.Minute) }

func violation(tenant rules.TenantID, at time.Time) violations.Violation {
	return violations.Violation{
		ID: violations.ID{At: at}, Tenant: tenant, Rule: 12, Subject: "42", Reason: "limit_exceeded",
		Scope: rules.ScopeUser, Mode: rules.ModeEnforce, Pattern: "user:{user_id}", Version: 3, Rate: 0.5, Burst: 50,
		UserID: "42", IP: netip.MustParseAddr("203.0.113.9"), Endpoint: "/api/search", Method: "GET", Plan: "free",
		Cost: 1_500_000, Tokens: 650_000, TokensKnown: true, RetryAfter: 35 * time.Millisecond, Count: 2,
		LastAt: at.Add(time.Millisecond), Meter: "usd",
	}
}

func tallyOf(v violations.Violation, dropped int64) violations.Tally {
	return violations.Tally{
		Tenant: v.Tenant, Rule: v.Rule, Minute: v.ID.At.Truncate(time.Minute), Subject: v.Subject,
		Denied: v.Count + dropped, DetailDropped: dropped, Details: []*violations.Violation{&v},
	}
}

func denialsOf(v *violations.Violation) (all []violations.RecentDenials) {
	for dimension, value := range map[violations.Dimension]string{
		violations.ByUser: v.UserID, violations.ByIP: v.IP.String(), violations.ByEndpoint: v.Endpoint,
		violations.ByNetwork: rules.SiteNetwork(v.IP).String(),
	} {
		all = append(all, violations.RecentDenials{
			Tenant: v.Tenant, Dimension: dimension, Slot: v.ID.At.Truncate(violations.SlotLength), Rule: v.Rule,
			Mode: v.Mode, Value: value, Denied: v.Count,
		})
	}
	return all
}

type batches struct{ number int64 }

func (b *batches) of(tallies ...violations.Tally) *violations.Batch {
	b.number++
	return &violations.Batch{Writer: "test", Number: b.number, Tallies: tallies}
}

// record writes variations of a violation for both tenants; only theirs have the method.
func (w *world) record(t *testing.T, at time.Time, variations ...func(*violations.Violation)) {
	t.Helper()
	batch := violations.Batch{Writer: t.Name(), Number: at.UnixNano()}
	for _, tenant := range []rules.TenantID{w.ours.ID, w.theirs.ID} {
		for _, vary := range variations {
			v := violation(tenant, at)
			if vary(&v); tenant == w.theirs.ID {
				v.Method = "THEIRS"
			}
			batch.Tallies = append(batch.Tallies, tallyOf(v, 1))
			batch.Recent = append(batch.Recent, denialsOf(&v)...)
		}
	}
	err := w.WriteViolations(t.Context(), &batch)
	if err != nil && !errors.Is(err, violations.ErrRefused) { // a recorder tries again
		err = w.WriteViolations(t.Context(), &batch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) wantOurs(t *testing.T, rows []violations.Violation) {
	t.Helper()
	for _, v := range rows {
		if v.Tenant != w.ours.ID || v.Method == "THEIRS" {
			t.Errorf("a row of the other tenant is among ours: %+v", v)
		}
	}
}

func around(at time.Time) violations.Filter {
	return violations.Filter{Since: at.Add(-time.Hour), Until: at.Add(time.Hour)}
}

// odd has the longest accepted id of odd bytes: control characters, quotes, and two-byte letters.
var odd = func() string {
	var b strings.Builder
	for r := rune(1); r < 256; r++ {
		b.WriteRune(r)
	}
	return b.String()[:199] + "\u2028\ufeff\U0010ffff%_\\'\"; --"
}()

func TestAViolationIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	at := lately().Add(123456 * time.Microsecond)
	tests := map[string]func(*violations.Violation){
		"all there is": func(*violations.Violation) {},
		"nothing but the rule": func(v *violations.Violation) {
			v.UserID, v.IP, v.Endpoint, v.Method, v.Plan, v.Subject = "", netip.Addr{}, "", "", "", ""
			v.Tokens, v.TokensKnown, v.RetryAfter, v.Rate, v.Burst = 0, false, 0, 0, 0
		},
		"every odd byte": func(v *violations.Violation) {
			v.UserID, v.Endpoint, v.Plan, v.Subject, v.Pattern = odd, odd, odd, odd+":"+odd, "user:"+odd
		},
		"the longest texts": func(v *violations.Violation) {
			v.UserID, v.Endpoint, v.Subject = strings.Repeat("u", 256), strings.Repeat("é", 512),
				strings.Repeat("s", 1024)
		},
		"IPv6":                   func(v *violations.Violation) { v.IP = netip.MustParseAddr("2001:db8::1") },
		"the largest cost":       func(v *violations.Violation) { v.Cost = 1_000_000_000_000_000 - 1 },
		"the smallest cost":      func(v *violations.Violation) { v.Cost = 1 },
		"a millionth too little": func(v *violations.Violation) { v.Tokens = -1 },
	}
	for name, vary := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.record(t, at, vary)
			want := violation(w.ours.ID, at)
			vary(&want)
			filters := map[string]violations.Filter{
				"rule": {Rule: 12}, "user": {UserID: want.UserID}, "endpoint": {Endpoint: want.Endpoint},
				"plan":            {Plan: want.Plan},
				"endpoint prefix": {EndpointPrefix: want.Endpoint[:len(want.Endpoint)/2]},
			}
			if want.IP.IsValid() {
				filters["ip"] = violations.Filter{IP: netip.PrefixFrom(want.IP, want.IP.BitLen())}
			}
			for by, filter := range filters {
				filter.Since, filter.Until = at, at.Add(time.Microsecond)
				page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{}, 10))(t)
				if len(page.Violations) != 1 {
					t.Fatalf("by %s %d rows are found, want 1", by, len(page.Violations))
				}
				got := page.Violations[0]
				id := got.ID
				got.ID.Number = 0
				if got != want {
					t.Errorf("by %s it reads\n%+v, want\n%+v", by, got, want)
				}
				one := must(w.Violation(t.Context(), w.ours.ID, must(violations.ParseID(id.String()))(t)))(t)
				if one.ID != id {
					t.Errorf("violation %s is %+v", id, one)
				}
			}
		})
	}
}

func TestABatchIsCountedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	batch := &violations.Batch{
		Writer: "one", Number: 1, Tallies: []violations.Tally{tallyOf(violation(w.ours.ID, at), 5)},
		Decisions: []violations.DecisionCount{{
			Tenant: w.ours.ID, Minute: at.Truncate(time.Minute),
			Verdicts: violations.Verdicts{Allowed: 3, Denied: 7, Degraded: 1, Taken: 2, TakenParts: 750_000},
		}},
	}
	var writers sync.WaitGroup
	for range 5 { // of the same batch, at once
		writers.Go(func() {
			if err := w.WriteViolations(t.Context(), batch); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 5 { // and of others
		other := *batch
		other.Writer = fmt.Sprint("other ", i)
		writers.Go(func() {
			if err := w.WriteViolations(t.Context(), &other); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	var counted int64
	err := connect(t, w.url).QueryRow(t.Context(),
		"SELECT sum(denied) FROM violation_minute WHERE tenant_id = $1 AND rule_id = 12 AND subject = '42'",
		w.ours.ID).Scan(&counted)
	if err != nil || counted != 6*7 {
		t.Errorf("%d denials are counted (%v), want %d", counted, err, 6*7)
	}
	filter := around(at)
	page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{}, 100))(t)
	if len(page.Violations) != 6 {
		t.Errorf("%d rows are there, want 6", len(page.Violations))
	}
	for _, step := range []time.Duration{time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour} {
		steps := violations.Steps{Since: at.Truncate(day), Until: at.Truncate(day).Add(day), Step: step}
		points := must(w.Decisions(t.Context(), w.ours.ID, 0, steps))(t)
		want := violations.Verdicts{Allowed: 18, Denied: 42, Degraded: 6, Taken: 16, TakenParts: 500_000}
		if len(points) != 1 || points[0].Verdicts != want {
			t.Errorf("in steps of %s checks were decided as %+v, want %+v", step, points, want)
		}
	}
}

func TestARowThatCannotBeStoredIsRefusedWithItsBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var numbers batches
	at := lately()
	good, bad, long := violation(w.ours.ID, at), violation(w.ours.ID, at), violation(w.ours.ID, at)
	bad.Endpoint = "a\x00b"
	for range 1000 { // what repeats would be compressed until it fits
		long.Subject += rand.Text()
	}
	for name, v := range map[string]violations.Violation{"a NUL": bad, "too long for an index": long} {
		err := w.WriteViolations(t.Context(), numbers.of(tallyOf(good, 0), tallyOf(v, 0)))
		if !errors.Is(err, violations.ErrRefused) {
			t.Errorf("%s: the error is %v, want ErrRefused", name, err)
		}
	}
	filter := around(at)
	if page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{}, 10))(t); len(page.Violations) > 0 {
		t.Errorf("a part of a refused batch is there: %+v", page.Violations)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.WriteViolations(ctx, numbers.of()); err == nil || errors.Is(err, violations.ErrRefused) {
		t.Errorf("a write that did not happen is %v, want another error than ErrRefused", err)
	}
}

func TestTimesFarAheadAreTakenForALittleAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var numbers batches
	ahead := time.Now().UTC().Add(48 * time.Hour)
	early, late := violation(w.ours.ID, ahead), violation(w.ours.ID, ahead.Add(time.Hour))
	batch := numbers.of(tallyOf(early, 0), tallyOf(late, 0)) // two minutes that become one
	batch.Decisions = []violations.DecisionCount{
		{Tenant: w.ours.ID, Minute: ahead, Verdicts: violations.Verdicts{Denied: 1}},
		{Tenant: w.ours.ID, Minute: ahead.Add(time.Hour), Verdicts: violations.Verdicts{Denied: 1}},
	}
	if err := w.WriteViolations(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	filter := violations.Filter{Since: time.Now().Add(4 * time.Minute), Until: time.Now().Add(6 * time.Minute)}
	if page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{}, 10))(t); len(page.Violations) != 2 {
		t.Errorf("%d rows are about five minutes ahead, want both", len(page.Violations))
	}
	chart := must(violations.Traffic(t.Context(), w.Store, w.ours.ID, 0, time.Now(), time.Now().Add(10*time.Minute)))(t)
	if chart.Total.Denied != 2 {
		t.Errorf("%d checks are counted in the next ten minutes, want 2", chart.Total.Denied)
	}
}
