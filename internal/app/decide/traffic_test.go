package decide

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/traffic"
)

type keptTraffic struct {
	blocks []traffic.Block
	months []traffic.UserMonth
}

func (k *keptTraffic) WriteTraffic(_ context.Context, blocks []traffic.Block) error {
	k.blocks = append(k.blocks, blocks...)
	return nil
}

func (k *keptTraffic) WriteUserMonths(_ context.Context, _ string, _ int64, counts []traffic.UserMonth) error {
	k.months = append(k.months, counts...)
	return nil
}

func (*keptTraffic) TrafficUsage(context.Context, []rules.TenantID) ([]traffic.Usage, int64, int, error) {
	return nil, 0, 1, nil
}

func TestChecksThatClientsDecidedAreRecordedOneByOne(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	settings.RecordDays = 7
	tenant := snapshot.New(snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: settings}}}).Tenant(1)
	sink := &keptTraffic{}
	recorder := traffic.NewRecorder(sink, traffic.Options{})
	lessor := enforce.NewLessor(membucket.New(membucket.Options{}), recordingTraffic{recorder}, nil,
		func(err error) { t.Error(err) })
	for _, allowed := range []int64{250, maxRecorded + 5} {
		lessor.Lease(t.Context(), tenant, &enforce.LesseeRequest{Holder: "a", Checks: []enforce.LesseeCheck{{
			Check: enforce.Check{Cost: enforce.Token, Request: rules.Request{UserID: "42"}}, Allowed: allowed,
		}}})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	recorder.Run(ended, time.Minute)
	recorded, times := 0, map[int64]bool{}
	var counts traffic.Counts
	for i := range sink.blocks {
		runs, err := sink.blocks[i].Runs()
		if err != nil {
			t.Fatal(err)
		}
		for j := range runs {
			recorded += len(runs[j].Times)
			for _, at := range runs[j].Times {
				times[int64(at)] = true
			}
		}
		counts.Seen += sink.blocks[i].Seen
		counts.Dropped += sink.blocks[i].Dropped
	}
	if recorded != 250+maxRecorded || counts.Seen != 250+maxRecorded+5 || counts.Dropped != 5 {
		t.Errorf("%d checks are recorded; the counts are %+v", recorded, counts)
	}
	if len(times) < 200 {
		t.Errorf("they are in %d milliseconds", len(times))
	}
}

func TestAUsersMonthHasWhatReservationsAreSettledTo(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	settings.RecordDays = 7
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: settings}}}
	for id, meter := range []rules.Meter{"", "usd"} {
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: rules.RuleID(1 + id), TenantID: 1, Pattern: pattern, Active: true, Meter: meter, RatePerSecond: 50,
			RateUnit: rules.PerSecond, Burst: 200, Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce,
			Action: rules.ActionLimit,
		})
	}
	rows.Rules = append(rows.Rules, rules.Rule{
		ID: 3, TenantID: 1, Pattern: pattern, Active: true, Burst: 10, Algorithm: rules.Concurrency,
		MaxHold: time.Minute, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Name: "places",
	})
	tenant := snapshot.New(rows).Tenant(1)
	sink := &keptTraffic{}
	recorder := traffic.NewRecorder(sink, traffic.Options{})
	buckets := membucket.New(membucket.Options{})
	limiter := enforce.NewLimiter(buckets, buckets, observers{recordingTraffic{recorder}}, nil)
	costs := func(usd enforce.Tokens) []enforce.MeterCost {
		return []enforce.MeterCost{{Meter: "usd", Cost: usd * enforce.Token}, {Meter: "pages", Cost: enforce.Token}}
	}
	for _, reserves := range []bool{true, false} {
		check := enforce.Check{
			Request: rules.Request{UserID: "42"}, Cost: enforce.Token, Costs: costs(10), Reserve: reserves, Key: "k",
		}
		decisions := make([]enforce.Decision, 1)
		limiter.Decide(t.Context(), tenant, []enforce.Check{check}, decisions)
		for _, with := range []enforce.Settlement{{Costs: costs(12), Extend: true}, {Costs: costs(4)}} {
			with.Key = "k"
			settled, err := limiter.SettleReservation(t.Context(), tenant, decisions[0].Reservation, with)
			if err != nil || !settled.Found {
				t.Fatalf("settled %+v, %v", settled, err)
			}
		}
	}
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(sink.months) != 2 || sink.months[0].Allowed != 2 || sink.months[0].Cost != 2 ||
		sink.months[1].Meter != "usd" || sink.months[1].Allowed != 2 || sink.months[1].Cost != 8 {
		t.Errorf("the months are %+v, want 2 checks at 2 requests and 8 usd", sink.months)
	}
}

// One request can report billions of checks in thousands of entries.
func TestALargeReportIsABoundedAmountOfWork(t *testing.T) {
	t.Parallel()
	const checks, entries, each = 1000, 8, 1_000_000_000
	settings := rules.DefaultSettings()
	settings.RecordDays = 7
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Slug: "acme", Settings: settings}}}
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	var denied []enforce.LesseeDenials
	for id := range rules.RuleID(entries) {
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: 1 + id, TenantID: 1, Pattern: pattern, Name: fmt.Sprint(id), Active: true, RatePerSecond: 50,
			RateUnit: rules.PerSecond, Burst: 200,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
		})
		denied = append(denied, enforce.LesseeDenials{Rule: 1 + id, Count: each})
	}
	recorder := traffic.NewRecorder(&keptTraffic{}, traffic.Options{MaxBytes: 1 << 30})
	lessor := enforce.NewLessor(membucket.New(membucket.Options{}), recordingTraffic{recorder}, nil,
		func(err error) { t.Error(err) })
	request := &enforce.LesseeRequest{Holder: "a"}
	for i := range checks {
		request.Checks = append(request.Checks, enforce.LesseeCheck{
			Check:   enforce.Check{Cost: enforce.Token, Request: rules.Request{UserID: fmt.Sprint(i)}},
			Allowed: each, Denied: denied,
		})
	}
	lessor.Lease(t.Context(), snapshot.New(rows).Tenant(1), request)
	if err := recorder.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	const all = checks * (1 + entries) * each
	switch stats := recorder.Stats(); {
	case stats.Recorded < maxRecorded || stats.Recorded > maxRecorded+checks*(1+entries):
		t.Errorf("%d checks are recorded", stats.Recorded)
	case stats.Recorded+stats.Dropped != all:
		t.Errorf("%d checks are recorded and %d dropped, of %d", stats.Recorded, stats.Dropped, int64(all))
	}
}
