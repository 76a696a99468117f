package replay

import "context"

// mostEvents caps what latest keeps, at 48 bytes each, and so what an effect decides.
const mostEvents = 300_000

// latest returns the last checks of the range in order of time: most of those that are counted in a result's Read, and
// with them all that take part since the first of these, but the last mostEvents at most. isFull reports whether a
// limit was reached, so that earlier checks do not matter.
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

// takesPart reports whether checks can change the figures. Listed ones cannot, nor can those outside of the sample
// without the limits that they share.
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
