package lend

import (
	"sync/atomic"
	"unsafe"
)

// Counter counts what one goroutine takes from time to time. Once it counted much, it is split for processors that
// count at the same time. Add is safe for concurrent use; the other methods are for that goroutine.
type Counter struct {
	one   atomic.Int64
	cells atomic.Pointer[[spread]paddedCount]
}

type paddedCount struct {
	atomic.Int64
	_ [lineBytes - unsafe.Sizeof(atomic.Int64{})]byte
}

// Add adds to the count.
func (c *Counter) Add(n int64) {
	if cells := c.cells.Load(); cells != nil {
		cells[here()].Add(n)
		return
	}
	c.one.Add(n)
}

// Load returns the count, or less if there are calls of Add at the same time.
func (c *Counter) Load() int64 {
	sum, cells := c.one.Load(), c.cells.Load()
	if cells == nil {
		if sum >= splitFrom {
			c.cells.Store(new([spread]paddedCount))
		}
		return sum
	}
	for i := range cells {
		sum += cells[i].Load()
	}
	return sum
}

// TakeUpTo takes at most so much from the count.
func (c *Counter) TakeUpTo(most int64) int64 {
	n := min(c.Load(), most)
	c.Add(-n)
	return n
}
