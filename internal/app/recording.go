package app

import (
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

// record creates the Recorder, if recording is on, and returns the observer of decisions.
func (a *API) record(m *metrics.Metrics, decisions enforce.Observer) enforce.Observer {
	if !a.cfg.Recording {
		return observers{decisions, m.Tenants()}
	}
	a.recorder = violations.NewRecorder(a.store, violations.Options{
		FlushInterval: a.cfg.FlushInterval, MaxBytes: a.cfg.RecorderMemory << 20,
		DetailsPerSecond: a.cfg.DetailsPerSecond, Logger: a.log,
		Observe: m.Recorder(a.recorderStats),
	})
	return observers{decisions, recording{a.recorder}, m.Violations(), m.Tenants()}
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

// recording tells a violations.Recorder of decisions. It is here because neither package may import the other.
type recording struct{ recorder *violations.Recorder }

var recordings = sync.Pool{New: func() any { return new(violations.Check) }}

func (r recording) Decided(tenant *snapshot.Tenant, check *enforce.Check, decision *enforce.Decision) {
	if decision.Reason == enforce.ReservationsExhausted {
		return // no rule was violated
	}
	c := recordings.Get().(*violations.Check)
	tiers := c.Tiers[:0]
	for i := range decision.Tiers {
		t := &decision.Tiers[i]
		tiers = append(tiers, violations.Tier{
			Rule: t.Match.Rule, Mode: t.Match.Mode, Subject: t.Match.Subject,
			Allowed: t.Allowed, Reason: string(t.Reason), Limit: t.Limit,
			BucketRead: t.BucketRead, Remaining: violations.Tokens(t.Remaining), RetryAfter: t.RetryAfter,
		})
	}
	*c = violations.Check{
		Tenant: tenant.Tenant.ID, Request: &check.Request, Plan: decision.Plan, Cost: violations.Tokens(check.Cost),
		Allowed: decision.Allowed, Bypassed: decision.Bypassed, Degraded: decision.Degraded,
		Tiers: tiers, Deciding: decision.Deciding,
	}
	r.recorder.Record(time.Now(), c)
	clear(tiers)
	*c = violations.Check{Tiers: tiers}
	recordings.Put(c)
}

// StoreAnswered does nothing: the recorder does not count answers of the store.
func (recording) StoreAnswered(time.Duration, error) {}
