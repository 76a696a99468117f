package violations

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrRefused is what a Sink answers for a batch with a row that it can never store. Nothing of the
// batch was written.
var ErrRefused = errors.New("refused")

// Sink is where the Recorder writes.
type Sink interface {
	// WriteViolations writes a batch, all or nothing, and adds its counts to those that are there. A batch whose
	// writer and number were written before is written already: nothing happens, and that is success.
	// Any error but ErrRefused means that the batch may have been written.
	//
	// Times that are far ahead of the store's clock are taken for a little ahead of it.
	WriteViolations(ctx context.Context, batch *Batch) error
}

// Batch is what is written at once.
type Batch struct {
	// Writer names one Recorder, and Number one of its batches. Numbers begin at 1.
	Writer string
	Number int64

	Decisions []DecisionCount
	Tallies   []Tally
}

// DecisionCount is how checks of one minute were decided.
type DecisionCount struct {
	Tenant rules.TenantID
	// Rule is 0 for checks as a whole; else the counts are the verdicts of that rule on those that it
	// matched, whatever became of them.
	Rule   rules.RuleID
	Minute time.Time
	Verdicts
}

// Verdicts count what was said of checks.
type Verdicts struct {
	// Each check is one of these. Bypassed is one that a bypass rule let pass.
	Allowed, Denied, Bypassed int64
	// Degraded are those among them that were decided without the shared buckets.
	Degraded int64
	// Taken is what allowed checks cost; of a rule, what they took from its buckets. It is kept apart
	// in whole tokens and millionths, since a busy minute at the highest cost is more than 64 bits hold.
	Taken      int64
	TakenParts Tokens
}

func (v *Verdicts) add(other Verdicts) {
	v.Allowed += other.Allowed
	v.Denied += other.Denied
	v.Bypassed += other.Bypassed
	v.Degraded += other.Degraded
	v.Taken += other.Taken
	v.TakenParts += other.TakenParts
}

// Tally counts the violations of one subject in one minute, and holds the rows that stand for them.
type Tally struct {
	Tenant rules.TenantID
	Rule   rules.RuleID
	Minute time.Time
	// Other says that these are the violations of all subjects for which there was no room.
	Other   bool
	Subject string

	// Denied is the sum of the details' counts and of DetailDropped.
	Denied        int64
	DetailDropped int64
	Details       []*Violation
}

// rows is how many rows of the store it takes to write the tally.
func (t *Tally) rows() int { return 1 + len(t.Details) }

// maxBatchRows bounds a batch, and with it the time that it holds the rows that others wait for.
const maxBatchRows = 2000

// batches makes batches of what was taken from memory, decisions first: they are few, and all
// processes add to the same.
func (r *Recorder) batches(decisions []DecisionCount, tallies []Tally) (batches []*Batch) {
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
	return batches
}

// number gives a batch its place among those of this writer.
func (r *Recorder) number(b *Batch) *Batch {
	r.written++
	b.Writer, b.Number = r.writer, r.written
	return b
}

// split halves a batch that was refused, so that what is wrong in it is found. What stands alone and
// is refused goes in the nearest form that is not: a detail is dropped, a subject becomes other. If even that is
// refused its counts are lost, and lost says how many violations or checks that is.
func (r *Recorder) split(b *Batch) (parts []*Batch, lost int64) {
	switch {
	case len(b.Decisions) > 1:
		half := len(b.Decisions) / 2
		parts = []*Batch{{Decisions: b.Decisions[:half]}, {Decisions: b.Decisions[half:]}}
	case len(b.Decisions) == 1:
		d := &b.Decisions[0]
		return nil, d.Allowed + d.Denied + d.Bypassed
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

// split returns what to write instead of a tally that was refused.
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
