package lend

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Each token is spent or given back once, and every spent one is reported, unless its grant ended meanwhile.
func TestChecksBesideReportsAreCountedExactly(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{
		"grants that are given back":  0,
		"grants that end or are lost": Life / 3,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lent, reports = 5000, 5000 // millionths, and how many
			now := Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
			limit := Limit{Rate: 1000, Burst: 1000}
			b := New(limit, now)
			b.Expect(1) // so that lots are split
			var clock atomic.Pointer[Instant]
			clock.Store(&now)
			var spent atomic.Int64
			var isOver atomic.Bool
			var checks sync.WaitGroup
			for range 4 {
				checks.Go(func() {
					var taken Pending
					for i := Tokens(0); !isOver.Load(); i++ {
						cost, at := 1+i%7, *clock.Load()
						switch {
						case i%3 == 0:
							if b.Spend(at, cost) {
								spent.Add(int64(cost))
							}
						case !b.Take(at, cost, &taken):
						case i%3 == 1:
							taken.Spend()
							spent.Add(int64(cost))
						default:
							taken.PutBack()
						}
					}
				})
			}
			for i := range reports {
				later := now.Plus(step * time.Duration(i))
				clock.Store(&later)
				if b.report(later, 0, i%3 == 0); step > 0 && i%20 == 0 {
					b.Forfeit()
				}
				b.Answered(later, later, &Grant{Amount: lent, Slot: int64(i), Epoch: 1, Limit: limit})
			}
			isOver.Store(true)
			checks.Wait()
			b.report(*clock.Load(), 0, true)
			moved, paid := b.Moved(), Tokens(spent.Load())
			back := moved.Back + moved.Forfeited
			t.Logf("%v was spent, and of %+v %v not reported", paid, moved, paid-moved.Spent)
			if moved.Lent != reports*lent || paid == 0 || paid+back > moved.Lent || moved.Spent > paid {
				t.Errorf("%v was spent, and the reports say %+v", paid, moved)
			}
			if step == 0 && (moved.Spent != paid || paid+back != moved.Lent || len(b.all()) > 0) {
				t.Errorf("of %v that were spent the reports have %v; they say %+v", paid, moved.Spent, moved)
			}
		})
	}
}
