package violations

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrRefused means that nothing of a batch was written, because the Sink can never store some row of it.
var ErrRefused = errors.New("refused")

// Sink stores batches.
type Sink interface {
	// WriteViolations writes a batch, all or nothing, and adds its counts to the stored ones. A stored writer and
	// number succeeds without effect, so a batch can be retried: after any error but ErrRefused it may have been
	// written. Times far ahead of the store's clock are moved close to it.
	WriteViolations(ctx context.Context, batch *Batch) error
}

// Batch is the content of one transaction.
type Batch struct {
	Writer string // a Recorder
	Number int64

	Recent    []RecentDenials
	Callers   []CallerCount
	Decisions []DecisionCount
	Tallies   []Tally
	// A stored crossing is skipped; of several records the store keeps the earliest and, at the same time, the one with
	// the least use.
	Crossings []Crossing
}

// ShadowRules is the rule id under which denials of rules in shadow mode are counted, because a rule's own count does
// not record its mode.
const ShadowRules rules.RuleID = -1

// RulesOf returns the rule id, below ShadowRules, under which all rules of a meter are counted, each check once.
func RulesOf(meter rules.Meter) rules.RuleID {
	hash := fnv1a(meter.Word())
	return ShadowRules - 1 - rules.RuleID(hash>>2)
}

func fnv1a(text string) uint64 {
	hash := uint64(14695981039346656037)
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return hash
}

// DecisionCount counts the decisions of a minute.
type DecisionCount struct {
	Tenant rules.TenantID
	Rule   rules.RuleID // or 0 for checks as a whole, ShadowRules, RulesOf
	Minute time.Time
	Verdicts
}

// Verdicts count decisions by outcome.
type Verdicts struct {
	Allowed, Denied, Bypassed int64 // one for each check; a bypass rule allowed Bypassed
	Degraded                  int64 // decided without the shared buckets
	NearLimit                 int64 // allowed, and left less than a fifth of a rule's limit
	// Taken is the cost of allowed checks or, for a rule, the tokens taken. Millionths are separate, because a busy
	// minute at the highest cost exceeds 64 bits.
	Taken      int64
	TakenParts Tokens
}

func (v *Verdicts) add(other Verdicts) {
	v.Allowed += other.Allowed
	v.Denied += other.Denied
	v.Bypassed += other.Bypassed
	v.Degraded += other.Degraded
	v.NearLimit += other.NearLimit
	v.Taken += other.Taken
	v.TakenParts += other.TakenParts
}

// Tally counts the violations of a subject in a minute, with their detail rows.
type Tally struct {
	Tenant  rules.TenantID
	Rule    rules.RuleID
	Minute  time.Time
	Other   bool // all subjects without memory of their own
	Subject string

	Denied        int64 // the details' counts and DetailDropped
	DetailDropped int64
	Details       []*Violation
}

func (t *Tally) rows() int { return 1 + len(t.Details) }

const maxBatchRows = 2000 // locks rows that other writers need

// batches puts decisions first, because they are few and all processes write the same rows.
func (r *Recorder) batches(decisions []DecisionCount, tallies []Tally, crossings []Crossing) (batches []*Batch) {
	for len(decisions) > 0 {
		n := min(len(decisions), maxBatchRows)
		batches = append(batches, r.number(&Batch{Decisions: decisions[:n]}))
		decisions = decisions[n:]
	}
	for len(tallies) > 0 {
		n, rows := 0, 0
		for n < len(tallies) && rows < maxBatchRows {
			rows += tallies[n].rows()
			n++
		}
		batches = append(batches, r.number(&Batch{Tallies: tallies[:n]}))
		tallies = tallies[n:]
	}
	for some := range slices.Chunk(crossings, maxBatchRows) {
		batches = append(batches, r.number(&Batch{Crossings: some}))
	}
	return batches
}

func (r *Recorder) recentBatches(recent []RecentDenials, callers []CallerCount) (batches []*Batch) {
	for some := range slices.Chunk(recent, maxBatchRows) {
		batches = append(batches, r.number(&Batch{Recent: some}))
	}
	for some := range slices.Chunk(callers, maxBatchRows) {
		batches = append(batches, r.number(&Batch{Callers: some}))
	}
	return batches
}

func (r *Recorder) number(b *Batch) *Batch {
	r.written++
	b.Writer, b.Number = r.writer, r.written
	return b
}

// split halves a refused batch to find the bad row. A single row is simplified: a detail is dropped, a subject becomes
// other. If that is refused too, lost is the number of lost violations or checks.
func (r *Recorder) split(b *Batch) (parts []*Batch, lost int64) {
	switch {
	case len(b.Recent) > 1:
		half := len(b.Recent) / 2
		parts = []*Batch{{Recent: b.Recent[:half]}, {Recent: b.Recent[half:]}}
	case len(b.Recent) == 1 && b.Recent[0].Other:
		return nil, 0 // the tallies have them too
	case len(b.Recent) == 1:
		one := b.Recent[0]
		one.Value, one.Other = "", true
		parts = []*Batch{{Recent: []RecentDenials{one}}}
	case len(b.Callers) > 1:
		half := len(b.Callers) / 2
		parts = []*Batch{{Callers: b.Callers[:half]}, {Callers: b.Callers[half:]}}
	case len(b.Callers) == 1:
		return nil, 0 // decisions count the checks too
	case len(b.Decisions) > 1:
		half := len(b.Decisions) / 2
		parts = []*Batch{{Decisions: b.Decisions[:half]}, {Decisions: b.Decisions[half:]}}
	case len(b.Decisions) == 1:
		d := &b.Decisions[0]
		return nil, d.Allowed + d.Denied + d.Bypassed
	case len(b.Crossings) > 1:
		half := len(b.Crossings) / 2
		parts = []*Batch{{Crossings: b.Crossings[:half]}, {Crossings: b.Crossings[half:]}}
	case len(b.Tallies) > 1:
		half := len(b.Tallies) / 2
		parts = []*Batch{{Tallies: b.Tallies[:half]}, {Tallies: b.Tallies[half:]}}
	case len(b.Tallies) == 1 && b.Tallies[0].Other:
		return nil, b.Tallies[0].Denied
	case len(b.Tallies) == 1:
		for _, tally := range b.Tallies[0].split() {
			parts = append(parts, &Batch{Tallies: []Tally{tally}})
		}
	}
	for _, part := range parts {
		r.number(part)
	}
	return parts, 0
}

func (t Tally) split() []Tally {
	if len(t.Details) == 0 {
		t.Other, t.Subject = true, ""
		return []Tally{t}
	}
	if len(t.Details) == 1 {
		t.DetailDropped, t.Details = t.Denied, nil
		return []Tally{t}
	}
	one := t
	one.Details = t.Details[:len(t.Details)/2]
	one.Denied, one.DetailDropped = 0, 0
	for _, detail := range one.Details {
		one.Denied += detail.Count
	}
	t.Details = t.Details[len(one.Details):]
	t.Denied -= one.Denied
	return []Tally{one, t}
}
