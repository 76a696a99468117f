package decide

import (
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func (a *API) record() enforce.Observer {
	if !a.Config.Recording {
		return observers{a.Decisions, a.Metrics.Tenants()}
	}
	a.recorder = violations.NewRecorder(a.Store, violations.Options{
		FlushInterval: a.Config.FlushInterval, MaxBytes: a.Config.RecorderMemory << 20,
		DetailsPerSecond: a.Config.DetailsPerSecond, Logger: a.Log,
		Observe: a.Metrics.Recorder(a.recorderStats),
	})
	a.traffic = traffic.NewRecorder(a.Store, traffic.Options{
		Budget: trafficBudget(a.Config), MaxBytes: a.Config.TrafficMemory << 20, Logger: a.Log,
	})
	a.Metrics.Traffic(a.traffic.Stats)
	return observers{
		a.Decisions,
		recording{a.recorder},
		recordingTraffic{a.traffic},
		a.Metrics.Violations(),
		a.Metrics.Tenants(),
	}
}

func (a *API) recorderStats() violations.Stats { return a.recorder.Stats() }

type observers []enforce.Observer

func (all observers) Decided(tenant *snapshot.Tenant, check *enforce.Check, decision *enforce.Decision) {
	for _, o := range all {
		o.Decided(tenant, check, decision)
	}
}

func (all observers) StoreAnswered(took time.Duration, err error) {
	for _, o := range all {
		o.StoreAnswered(took, err)
	}
}

func (all observers) Settled(tenant *snapshot.Tenant, settled *enforce.Settled) {
	for _, o := range all {
		if o, ok := o.(enforce.SettlementObserver); ok {
			o.Settled(tenant, settled)
		}
	}
}

// recording passes decisions to a violations.Recorder, because neither package may import the other.
type recording struct{ recorder *violations.Recorder }

var recordings = sync.Pool{New: func() any { return new(violations.Check) }}

func (r recording) Decided(tenant *snapshot.Tenant, check *enforce.Check, decision *enforce.Decision) {
	if decision.Reason == enforce.ReservationsExhausted {
		return
	}
	c := recordings.Get().(*violations.Check)
	tiers := c.Tiers[:0]
	for i := range decision.Tiers {
		t := &decision.Tiers[i]
		cost, _ := check.CostOf(t.Match.Rule)
		tiers = append(tiers, violations.Tier{
			Rule: t.Match.Rule, Mode: t.Match.Mode, Subject: t.Match.Subject, Cost: violations.Tokens(cost),
			Allowed: t.Allowed, Reason: string(t.Reason), Limit: t.Limit, IsOwn: t.Match.IsOwn,
			BucketRead: t.BucketRead, Remaining: violations.Tokens(t.Remaining), RetryAfter: t.RetryAfter,
			Charged: violations.Tokens(t.Charged),
		})
	}
	*c = violations.Check{
		Tenant: tenant.Tenant.ID, Request: &check.Request, Plan: decision.Plan, Cost: violations.Tokens(check.Cost),
		HasCosts: check.Cost == 0 && !check.IsLook(),
		Allowed:  decision.Allowed, Bypassed: decision.Bypassed, Degraded: decision.Degraded,
		Tiers: tiers, Deciding: decision.Deciding, Times: decision.Times, Record: check.Record,
		ByMeter: tenant.CountsMeters(),
	}
	r.recorder.Record(time.Now(), c)
	r.note(c, decision)
	clear(tiers)
	*c = violations.Check{Tiers: tiers}
	recordings.Put(c)
}

func (r recording) note(c *violations.Check, decision *enforce.Decision) {
	if decision.Degraded || decision.Recalled {
		return
	}
	for i := range decision.Tiers {
		t := &decision.Tiers[i]
		if len(t.Match.Rule.NotifyAt) == 0 || t.Match.IsOwn || !t.BucketRead || t.Limit.Kind != rules.KindFixedWindow {
			continue
		}
		bucket := enforce.Bucket{Level: enforce.Level{Micros: t.Remaining}, Stamp: t.Stamp, Limit: t.Limit}
		r.noteUse(c.Tenant, t.Match, &bucket, violations.Tokens(t.Charged))
	}
}

func (r recording) noteUse(tenant rules.TenantID, match *rules.Match, bucket *enforce.Bucket, taken violations.Tokens) {
	r.recorder.Note(&violations.Use{
		Tenant: tenant, Rule: match.Rule, Mode: match.Mode, Subject: match.Subject, Limit: bucket.Limit,
		At:    bucket.Stamp,
		Used:  violations.Tokens(bucket.Limit.Burst)*violations.Token - violations.Tokens(bucket.Level.Micros),
		Taken: taken,
	})
}

func (r recording) Settled(tenant *snapshot.Tenant, settled *enforce.Settled) {
	for i := range settled.Buckets {
		b := &settled.Buckets[i]
		if b.State.Limit.Kind != rules.KindFixedWindow || b.Taken <= 0 || b.Key.IsHashed() {
			continue
		}
		match, ok := tenant.Bucket(b.Key.Rule, b.Key.Subject, time.Now())
		if ok && len(match.Rule.NotifyAt) > 0 {
			r.noteUse(tenant.Tenant.ID, &match, &b.State.Bucket, violations.Tokens(b.Taken))
		}
	}
}

func (recording) StoreAnswered(time.Duration, error) {}
