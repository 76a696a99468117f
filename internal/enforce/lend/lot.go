package lend

import (
	"iter"
	"math"
	"sync/atomic"
	"unsafe"
)

// Lot is the rest of one grant, in millionths of a token.
//
// A lent token is in a cell, taken by a check in progress, or spent. Spent tokens are those missing from the first two,
// so a check that spends at once changes one number.
type Lot struct {
	one   cell
	cells *[spread]paddedCell // instead of one, in a large lot
	due   int64               // lent, and neither reported as spent nor given back; of the one goroutine
	slot  int64
	epoch int64
	since int64 // of the limit in force when it was lent
	from  int64 // when the answer came, on the monotonic clock
	ends  Instant
}

const (
	spread = 16 // a power of two
	// splitFrom: only lots for this many checks are split, because cells take 2 KB.
	splitFrom = 64 * spread
	lineBytes = 128 // two cache lines, because processors fetch pairs
)

type cell struct {
	left  atomic.Int64
	taken atomic.Int64 // ever, by checks that did not spend at once
	ended atomic.Int64 // of taken: spent or put back since, maybe counted by another cell
}

type paddedCell struct {
	cell
	_ [lineBytes - unsafe.Sizeof(cell{})]byte
}

// here picks a cell by the address of the stack, so that concurrent goroutines seldom share one.
func here() int {
	var local byte
	at := uint64(uintptr(unsafe.Pointer(&local))) >> 11 //nolint:gosec // a number to spread by; nothing is read there
	return int(at * 0x9e3779b97f4a7c15 >> 60)           // the upper 4 bits, as spread is 16
}

// fill splits a new lot if it serves enough checks of a cost; 0, which a server's many lots announce, never splits.
func (l *Lot) fill(amount, cost int64) {
	l.due = amount
	if cost == 0 || amount/cost < splitFrom {
		l.one.left.Store(amount)
		return
	}
	l.cells = new([spread]paddedCell)
	for i := range l.cells {
		l.cells[i].left.Store(amount / spread)
	}
	l.cells[0].left.Add(amount % spread)
}

func (l *Lot) own() *cell {
	if l.cells == nil {
		return &l.one
	}
	return &l.cells[here()].cell
}

func (l *Lot) all() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		if l.cells == nil {
			yield(&l.one)
			return
		}
		for i := range l.cells {
			if !yield(&l.cells[i].cell) {
				return
			}
		}
	}
}

// take takes up to an amount, also from other goroutines' cells, until putBack or spent.
func (l *Lot) take(amount int64) int64 {
	own := l.own()
	taken := own.take(amount)
	if l.cells == nil {
		return taken
	}
	for i := 0; taken < amount && i < spread; i++ {
		taken += l.cells[i].take(math.MaxInt64)
	}
	if rest := taken - amount; rest > 0 {
		own.putBack(rest)
	}
	return min(taken, amount)
}

func (c *cell) take(most int64) int64 {
	for {
		left := c.left.Load()
		if left <= 0 {
			return 0
		}
		amount := min(left, most)
		c.taken.Add(amount) // before the tokens leave, for unreported
		if c.left.CompareAndSwap(left, left-amount) {
			return amount
		}
		c.ended.Add(amount)
	}
}

func (c *cell) putBack(amount int64) {
	c.left.Add(amount)
	c.ended.Add(amount) // after the tokens are back, for unreported
}

func (c *cell) spend(cost int64) bool {
	for {
		left := c.left.Load()
		if left < cost {
			return false
		}
		if c.left.CompareAndSwap(left, left-cost) {
			return true
		}
	}
}

func (l *Lot) left() (sum int64) {
	for c := range l.all() {
		sum += c.left.Load()
	}
	return sum
}

// unreported returns the tokens left, held by checks, and spent since the last report; empties leaves nothing in cells.
//
// Beside running checks spent can be too low, never too high: ended is read first and taken last, so moving tokens
// count as held.
func (l *Lot) unreported(empties bool) (left, held, spent int64) {
	for c := range l.all() {
		held -= c.ended.Load()
	}
	for c := range l.all() {
		if empties {
			left += c.left.Swap(0)
		} else {
			left += c.left.Load()
		}
	}
	for c := range l.all() {
		held += c.taken.Load()
	}
	return left, held, max(0, l.due-left-held)
}
