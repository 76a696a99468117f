package adapt

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// The times of the control loop, and bounds of its work.
const (
	roundEvery    = 2 * time.Second
	LeadFor       = 6 * time.Second // of a leader's lease without renewal
	Holds         = time.Minute     // of a step without renewal, renewBefore its end
	renewBefore   = 40 * time.Second
	keepReports   = 2 * time.Minute
	writersAtOnce = 4
	maxCause      = 200
)

// Store is shared by the control loops of all processes, on whose clock all times are.
type Store interface {
	Lead(ctx context.Context, holder string, lasts time.Duration) (now time.Time, leads bool, err error)
	EndLead(ctx context.Context, holder string) error
	BackendReports(ctx context.Context, after time.Time) ([]BackendSlice, error)
	DropBackendReports(ctx context.Context, before time.Time) error
	RecentSteps(ctx context.Context, after time.Time) ([]rules.Step, error)
	// PutSteps writes a tenant's steps, to end after holds, without waiting for other writers of the tenant: written
	// is false if there is one, if the tenant's rates are fixed, or if the holder no longer leads. Steps of rules that
	// do not adapt are skipped.
	PutSteps(ctx context.Context, holder string, tenant rules.TenantID, steps []rules.Step,
		holds time.Duration) (written bool, err error)
}

// BackendSlice is a slice of a tenant's backend.
type BackendSlice struct {
	Tenant  rules.TenantID
	Backend string
	Slice
}

// Loop is the control loop of a process.
type Loop struct {
	store     Store
	snapshots func() *snapshot.Snapshot
	log       *slog.Logger
	holder    string

	leads     atomic.Bool
	up, down  atomic.Int64
	shares    atomic.Pointer[[]Share]
	droppedAt time.Time
}

// Share is a rule's share of its configured rate.
type Share struct {
	Tenant  string // slug
	Rule    rules.RuleID
	Percent int
}

// NewLoop returns a Loop; call Run.
func NewLoop(store Store, snapshots func() *snapshot.Snapshot, log *slog.Logger) *Loop {
	return &Loop{store: store, snapshots: snapshots, log: log, holder: rand.Text()}
}

// Leads reports whether this process is the leader.
func (l *Loop) Leads() bool { return l.leads.Load() }

// Steps returns the number of steps up and down by this process.
func (l *Loop) Steps() (up, down int64) { return l.up.Load(), l.down.Load() }

// Shares returns the rules below their configured rate, lowest share first; nil unless this process leads.
func (l *Loop) Shares() []Share {
	if shares := l.shares.Load(); shares != nil {
		return *shares
	}
	return nil
}

// Run decides every two seconds while this process leads, until ctx ends.
func (l *Loop) Run(ctx context.Context) {
	outage := jobs.Outage{
		Failing: "rates cannot adapt; they are as configured within a minute", Recovered: "rates adapt again",
	}
	panics.Every(ctx, roundEvery, func() { outage.Note(ctx, l.log, l.Round(ctx)) })
	l.endLead(context.WithoutCancel(ctx))
}

func (l *Loop) endLead(ctx context.Context) {
	l.shares.Store(nil)
	if !l.leads.Swap(false) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, roundEvery)
	defer cancel()
	if err := l.store.EndLead(ctx, l.holder); err != nil {
		l.log.WarnContext(ctx, "another process decides on rates only after a few seconds", "error", err)
	}
}

// Round decides once, if this process leads or can.
func (l *Loop) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, LeadFor)
	defer cancel()
	rulesInMemory := l.snapshots()
	if rulesInMemory == nil || rulesInMemory.Sizes().AdaptingRules == 0 {
		l.endLead(ctx)
		return nil
	}
	now, leads, err := l.store.Lead(ctx, l.holder, LeadFor)
	if err != nil {
		l.leads.Store(false) // another one may lead by now
		return err
	}
	if l.leads.Swap(leads); !leads {
		l.shares.Store(nil)
		return nil
	}
	found, err := l.read(ctx, now)
	if err != nil {
		return err
	}
	var shares []Share
	writes := map[rules.TenantID][]change{}
	for tenant := range rulesInMemory.Tenants() {
		if !canAdapt(&tenant.Tenant) {
			continue
		}
		for _, rule := range tenant.AdaptingRules() {
			if rule.Mode != rules.ModeEnforce { // a shadow rule denies nothing, so no rate would be low enough
				continue
			}
			next := found.decide(rule, now)
			if next.isNew {
				writes[tenant.Tenant.ID] = append(writes[tenant.Tenant.ID], next)
			}
			if next.step.Percent < 100 {
				shares = append(shares, Share{tenant.Tenant.Slug, rule.ID, next.step.Percent})
			}
		}
	}
	slices.SortFunc(shares, func(a,
		b Share,
	) int {
		return cmp.Or(cmp.Compare(a.Percent, b.Percent), cmp.Compare(a.Rule, b.Rule))
	})
	l.shares.Store(&shares)
	return l.write(ctx, writes)
}

func canAdapt(t *rules.Tenant) bool { return !t.Suspended && !t.InShadow && !t.Settings.FixedRates }

type findings struct {
	slices map[backendKey][]Slice
	steps  map[ruleKey]rules.Step
}

type ruleKey struct {
	tenant rules.TenantID
	rule   rules.RuleID
}

func (l *Loop) read(ctx context.Context, now time.Time) (findings, error) {
	found := findings{slices: map[backendKey][]Slice{}, steps: map[ruleKey]rules.Step{}}
	reports, err := l.store.BackendReports(ctx, now.Add(-Window-SliceLength))
	if err != nil {
		return found, err
	}
	for i := range reports {
		key := backendKey{reports[i].Tenant, reports[i].Backend}
		found.slices[key] = append(found.slices[key], reports[i].Slice)
	}
	steps, err := l.store.RecentSteps(ctx, now.Add(-lastWait))
	if err != nil {
		return found, err
	}
	for _, step := range steps {
		found.steps[ruleKey{step.TenantID, step.RuleID}] = step
	}
	if now.Sub(l.droppedAt) >= keepReports/4 {
		l.droppedAt = now
		return found, l.store.DropBackendReports(ctx, now.Add(-keepReports))
	}
	return found, nil
}

type change struct {
	rule  *rules.Rule
	from  int // percent
	step  rules.Step
	isNew bool
}

func (f *findings) decide(rule *rules.Rule, now time.Time) change {
	held, ok := f.steps[ruleKey{rule.TenantID, rule.ID}]
	before := memoryOf(&held, ok, now)
	d := Decide(before, rule.Adapt, f.slices[backendKey{rule.TenantID, rule.Adapt.Backend}], now)
	renew := d.Percent < 100 && d.Verdict != Unknown && held.EndsAt.Sub(now) < renewBefore
	notes := d.Memory
	notes.Percent, notes.SteppedAt = before.Percent, before.SteppedAt
	next := change{
		rule: rule, from: before.Percent, isNew: renew || d.Percent != before.Percent || notes != before,
		step: rules.Step{
			TenantID: rule.TenantID, RuleID: rule.ID, Percent: d.Percent, SteppedAt: d.SteppedAt,
			Cause: held.Cause, Memory: d.notes(),
		},
	}
	if d.Cause != "" {
		next.step.Cause = d.Cause[:min(len(d.Cause), maxCause)]
	}
	if next.step.SteppedAt.IsZero() {
		next.step.SteppedAt = now
	}
	return next
}

// memoryOf takes an expired step for a step to the full rate.
func memoryOf(held *rules.Step, ok bool, now time.Time) Memory {
	m := Memory{Percent: 100}
	if !ok {
		return m
	}
	if err := json.Unmarshal([]byte(held.Memory), &m); err != nil {
		m = Memory{} // of another release
	}
	m.Percent, m.SteppedAt = held.Percent, held.SteppedAt
	if !held.EndsAt.After(now) && m.Percent < 100 {
		m.Percent, m.SteppedAt = 100, held.EndsAt
	}
	return m
}

func (d *Decision) notes() string {
	text, err := json.Marshal(d.Memory)
	if err != nil {
		return "{}" // only a year above 9999 fails
	}
	return string(text)
}

func (l *Loop) write(ctx context.Context, writes map[rules.TenantID][]change) error {
	todo := make(chan rules.TenantID)
	failed := make([]error, writersAtOnce)
	var writing panics.Group
	for i := range failed {
		writing.Go(l.log, "writing steps", func() {
			for tenant := range todo {
				err := panics.Do(l.log, "writing steps",
					func() error { return l.writeTenant(ctx, tenant, writes[tenant]) })
				if err != nil {
					failed[i] = err // the last one is enough, since an outage's errors are alike
				}
			}
		})
	}
	for tenant := range writes {
		todo <- tenant
	}
	close(todo)
	panicked := writing.Wait()
	return errors.Join(errors.Join(failed...), panicked)
}

func (l *Loop) writeTenant(ctx context.Context, tenant rules.TenantID, changes []change) error {
	steps := make([]rules.Step, len(changes))
	for i := range changes {
		steps[i] = changes[i].step
	}
	written, err := l.store.PutSteps(ctx, l.holder, tenant, steps, Holds)
	if err != nil || !written {
		return err
	}
	for i := range changes {
		c := &changes[i]
		switch {
		case c.step.Percent < c.from:
			l.down.Add(1)
			l.logStep(ctx, "a rate was lowered", c)
		case c.step.Percent > c.from:
			l.up.Add(1)
			l.logStep(ctx, "a rate was raised", c)
		}
	}
	return nil
}

func (l *Loop) logStep(ctx context.Context, message string, c *change) {
	l.log.InfoContext(ctx, message, "tenant_id", c.rule.TenantID, "rule_id", c.rule.ID, "backend", c.rule.Adapt.Backend,
		"from_percent", c.from, "to_percent", c.step.Percent, "cause", c.step.Cause)
}

// Standing is the state of an adapting rule.
type Standing struct {
	Rule rules.Rule
	Step *rules.Step // nil at the configured rate
	Seen *Seen       // of its backend in the last Window; nil without reports
}

// Reader reads the state of rules for people.
type Reader interface {
	Adapting(ctx context.Context, tenant rules.TenantID) ([]Standing, error)
}
