package lend

import (
	"sync/atomic"
	"unsafe"
)

// Counter counts what one goroutine takes from time to time, split by processor once busy. Only Add is safe for
// concurrent use.
type Counter struct {
	one   atomic.Int64
	cells atomic.Pointer[[spread]paddedCount]
}

type paddedCount struct {
	atomic.Int64
	_ [lineBytes - unsafe.Sizeof(atomic.Int64{})]byte
}

// Add adds n.
func (c *Counter) Add(n int64) {
	if cells := c.cells.Load(); cells != nil {
		cells[here()].Add(n)
		return
	}
	c.one.Add(n)
}

// Load may miss concurrent calls of Add.
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

// TakeUpTo takes at most that much.
func (c *Counter) TakeUpTo(most int64) int64 {
	n := min(c.Load(), most)
	c.Add(-n)
	return n
}
