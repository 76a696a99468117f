package lend

import (
	"sync/atomic"
	"unsafe"
)

// Counter counts what one goroutine takes from time to time. It is split for processors that count at the same time,
// once that goroutine takes much.
type Counter struct {
	one   atomic.Int64
	cells atomic.Pointer[[spread]paddedCount]
}

type paddedCount struct {
	atomic.Int64
	_ [lineBytes - unsafe.Sizeof(atomic.Int64{})]byte
}

// Add is safe for concurrent use.
func (c *Counter) Add(n int64) {
	if cells := c.cells.Load(); cells != nil {
		cells[here()].Add(n)
		return
	}
	c.one.Add(n)
}

// Load returns the count. Beside calls of Add that run at the same time, it is never too much.
func (c *Counter) Load() int64 {
	sum := c.one.Load()
	if cells := c.cells.Load(); cells != nil {
		for i := range cells {
			sum += cells[i].Load()
		}
	}
	return sum
}

// TakeUpTo takes at most so much from the count. Only one goroutine may call it at a time.
func (c *Counter) TakeUpTo(most int64) int64 {
	n := min(c.Load(), most)
	c.Add(-n)
	if n >= splitFrom && c.cells.Load() == nil {
		c.cells.Store(new([spread]paddedCount))
	}
	return n
}
