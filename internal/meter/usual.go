package meter

import (
	"sync"
	"time"
)

// Usual is how long the database takes at present to answer a lookup by key, the network included: hardly any work and
// all the delay. It is safe for concurrent use; the zero value knows nothing yet.
//
// It is the mean and the mean deviation of recent lookups, as TCP estimates the time of an answer. Without delays the deviation is
// next to nothing. With long ones it is most of the mean, and keeps chance from being taken for work. A caller
// that makes the database slow gains little: its requests cost at least the least, and its queries are delayed too.
type Usual struct {
	mu              sync.Mutex
	mean, deviation time.Duration
	known           bool
}

// recent is about how many answers the mean is of.
const recent = 16

// Beyond returns how much longer an answer took than usual.
func (u *Usual) Beyond(took time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return took - u.mean - u.deviation
}

// Note notes the answer to a lookup.
func (u *Usual) Note(took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.known {
		u.mean, u.known = took, true
	}
	u.deviation += ((took - u.mean).Abs() - u.deviation) / recent
	u.mean += (took - u.mean) / recent
}
