package meter

import (
	"sync"
	"time"
)

// Usual is how long the database takes at present to answer a lookup by key, the network included: hardly any work and
// all the delay. It is safe for concurrent use; the zero value knows nothing yet.
//
// It is the mean, and not the fastest or a high percentile. So the delays of many queries cancel out, and a caller that
// makes the database slow gains nothing: its own queries are delayed by what is subtracted at least.
type Usual struct {
	mu    sync.Mutex
	mean  time.Duration
	known bool
}

// recent is about how many answers the mean is of.
const recent = 16

// Beyond returns how much longer an answer took than usual.
func (u *Usual) Beyond(took time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return took - u.mean
}

// Note notes the answer to a lookup.
func (u *Usual) Note(took time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.known {
		u.mean, u.known = took, true
	}
	u.mean += (took - u.mean) / recent
}
