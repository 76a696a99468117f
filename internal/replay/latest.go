package replay

import "iter"

// latest returns the last checks of windows, at most so many, as one window. It returns the windows themselves if most is 0.
func latest(windows iter.Seq2[[]event, error], most int) iter.Seq2[[]event, error] {
	if most == 0 {
		return windows
	}
	return func(yield func([]event, error) bool) {
		var kept []event
		for events, err := range windows {
			if err != nil {
				yield(nil, err)
				return
			}
			kept = append(kept, events[max(0, len(events)-most):]...)
			if len(kept) > 2*most {
				kept = kept[:copy(kept, kept[len(kept)-most:])]
			}
		}
		yield(kept[max(0, len(kept)-most):], nil)
	}
}
