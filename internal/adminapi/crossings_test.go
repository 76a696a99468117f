package adminapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type crossingPage struct {
	Items []struct {
		RuleID       int64     `json:"rule_id,string"`
		Name         string    `json:"name"`
		Subject      string    `json:"subject"`
		UserID       *string   `json:"user_id"`
		Share        int       `json:"share"`
		Used         float64   `json:"used"`
		Burst        int64     `json:"burst_capacity"`
		WindowEndsAt time.Time `json:"window_ends_at"`
	} `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

func TestCrossingsAreListedByRuleAndUserInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	at := time.Now().UTC().Truncate(time.Hour)
	batch := violations.Batch{Writer: "test", Number: 1}
	for _, tenant := range []rules.TenantID{w.acme.ID, w.other.ID} {
		for i := range 5 {
			batch.Crossings = append(batch.Crossings, violations.Crossing{
				Tenant: tenant, Rule: rules.RuleID(10 + i%2), Subject: "42", UserID: "42", Share: 80, Used: 80_500_000,
				Burst: 100,
				Mode:  rules.ModeEnforce, RuleName: "hourly", Pattern: "user:{user_id}",
				WindowStart: at.Add(-time.Duration(i) * time.Hour), WindowEnd: at.Add(-time.Duration(i-1) * time.Hour),
				At: at,
			})
		}
		batch.Crossings = append(batch.Crossings, violations.Crossing{
			Tenant: tenant, Rule: 10, Subject: "", Share: 100, Used: 100 * violations.Token, Burst: 100,
			Mode:    rules.ModeShadow,
			Pattern: "global", WindowStart: at, WindowEnd: at.Add(time.Hour), At: at.Add(-time.Minute),
		})
	}
	if err := w.store.WriteViolations(w.ctx(), &batch); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{
		"": 6, "rule_id=10&": 4, "user_id=42&": 5, "user_id=42&rule_id=11&": 2,
		"user_id=7&": 0,
	} {
		path := "/api/v1/tenants/acme/crossings?" + query + "limit=2"
		found := 0
		for cursor := ""; ; {
			page := read[crossingPage](t, w.get(by, path+cursor))
			found += len(page.Items)
			if page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *page.NextCursor
		}
		if found != want {
			t.Errorf("%q finds %d crossings, want %d", query, found, want)
		}
	}
	first := read[crossingPage](t, w.get(by, "/api/v1/tenants/acme/crossings?user_id=42&limit=1"))
	if got := first.Items[0]; got.Name != "hourly" || got.Used != 80.5 || *got.UserID != "42" || got.Share != 80 ||
		got.Burst != 100 {
		t.Errorf("a crossing is shown as %+v", got)
	}
	shared := read[crossingPage](t, w.get(by, "/api/v1/tenants/acme/crossings?limit=6"))
	if last := shared.Items[5]; last.UserID != nil || last.Subject != "" {
		t.Errorf("a crossing of a bucket that users share is shown as %+v", last)
	}
	for query, pointer := range map[string]string{
		"rule_id=0": "/query/rule_id", "cursor=x": "/query/cursor",
		"user=42": "/query/user",
	} {
		got := w.send(by, "GET", "/api/v1/tenants/acme/crossings?"+query, nil)
		if pointers := pointersOf(t, got); got.status != http.StatusBadRequest || len(pointers) != 1 ||
			pointers[0] != pointer {
			t.Errorf("%s is answered %d about %v, want %s", query, got.status, pointers, pointer)
		}
	}
}

func TestABucketOfAQuotaShowsItsWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	berlin := must(time.LoadLocation("Europe/Berlin"))(t)
	now, startDay := time.Now().In(berlin), 15
	if 9 < now.Day() && now.Day() < 21 {
		startDay = 1 // so that no window begins while the test runs
	}
	quota := w.rule(w.acme, func(r *rules.Rule) {
		r.RatePerSecond, r.Burst, r.Algorithm = 0, 100, rules.FixedWindow
		r.Window = rules.Window{Calendar: rules.CalendarMonth, Zone: "Europe/Berlin", StartDay: startDay}
	})
	w.rule(w.acme)
	must(w.system().PutOverride(w.ctx(), rules.Override{
		TenantID: w.acme.ID, RuleID: quota.ID, UserID: "42", RateUnit: rules.PerSecond, Burst: 500, Reason: "contract",
	}, rules.NoneStored))(w.t)
	w.refresh()
	taken := []enforce.BucketCheck{{Cost: 120 * enforce.Token, Tiers: []enforce.Tier{{
		Key: enforce.Key{Tenant: w.acme.ID, Rule: quota.ID, Subject: "42"}, Limit: func() enforce.Limit {
			match, _ := w.watcher.Snapshot().Tenant(w.acme.ID).Bucket(quota.ID, "42", time.Now())
			return match.Limit
		}(),
	}}}}
	if err := w.buckets.Take(w.ctx(), taken); err != nil || !taken[0].Allowed {
		t.Fatalf("taken %+v, %v", taken[0], err)
	}
	got := read[struct {
		Items []struct {
			RuleID     int64   `json:"rule_id,string"`
			Tokens     float64 `json:"tokens"`
			Burst      int64   `json:"burst_capacity"`
			Overridden bool    `json:"overridden"`
			Window     *struct {
				StartsAt time.Time `json:"starts_at"`
				EndsAt   time.Time `json:"ends_at"`
				Zone     string    `json:"zone"`
			} `json:"window"`
		} `json:"items"`
	}](t, w.get(by, "/api/v1/tenants/acme/users/42/buckets"))
	if len(got.Items) != 2 || got.Items[1].Window != nil {
		t.Fatalf("the buckets are %+v, want the quota and a token bucket without a window", got.Items)
	}
	month := func(n int) string {
		if now.Day() < startDay {
			n--
		}
		return time.Date(now.Year(), now.Month()+time.Month(n), startDay, 0, 0, 0, 0, berlin).UTC().String()
	}
	q := got.Items[0]
	if q.Tokens != 380 || q.Burst != 500 || !q.Overridden || q.Window == nil || q.Window.Zone != "Europe/Berlin" ||
		fmt.Sprint(q.Window.StartsAt) != month(0) || fmt.Sprint(q.Window.EndsAt) != month(1) {
		t.Errorf("the quota is shown as %+v with the window %+v", q, q.Window)
	}
}
