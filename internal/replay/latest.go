package replay

import "context"

// mostEvents caps the events that latest keeps, at 48 bytes each.
const mostEvents = 300_000

// latest returns the last checks in order of time: most that count in Result.Read, and all that take part since, but at
// most mostEvents. isFull reports whether a limit was reached.
func (r *run) latest(ctx context.Context, most int) (kept []event, isFull bool, err error) {
	since, until := r.in.Since.UnixMilli(), r.in.Until.UnixMilli()
	for events, err := range r.windows(ctx, nil) {
		if err != nil {
			return nil, false, err
		}
		for i := range events {
			if e := &events[i]; since <= e.at && e.at < until && r.takesPart(e.subject) {
				kept = append(kept, *e)
			}
		}
		if len(kept) > 2*mostEvents {
			last, _ := lastOf(kept, most)
			kept = kept[:copy(kept, last)]
		}
	}
	kept, isFull = lastOf(kept, most)
	return kept, isFull, nil
}

// takesPart reports whether checks can change the figures. Listed ones cannot. Those outside of the sample can only if
// shared limits take part.
func (r *run) takesPart(s *subject) bool {
	return s.role == counted || s.role == fed && !r.in.IsPartial
}

func lastOf(events []event, most int) (last []event, isFull bool) {
	read := 0
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].subject.isIn(byAll) {
			read++
		}
		if read == most || len(events)-i == mostEvents {
			return events[i:], true
		}
	}
	return events, false
}
