package redisbucket

const (
	// quantum is how many tiers a flow may send at each visit: sixteen checks of four.
	quantum = 64
	// maxWaiting is how many tiers of one tenant wait at most. It is more than Redis decides within half of the budget,
	// so a call beyond it would fail anyhow, later.
	maxWaiting = 1 << 16
)

// line holds the calls that wait, in one first-in first-out flow for each tenant. Flows take turns by deficit round robin
// (M. Shreedhar, G. Varghese: Efficient Fair Queuing Using Deficit Round Robin, SIGCOMM 1995), so a tenant that floods
// waits behind itself. A tenant's flow is forgotten when it is empty.
type line struct {
	flows       map[int64]*flow
	first, last *flow // the flow that is visited next, and the one that is visited last
	spare       *flow // forgotten, to be used again
}

// flow is the calls of one tenant that wait.
type flow struct {
	tenant      int64
	first, last *call
	tiers       int // of all calls
	deficit     int // how many tiers it may still send
	next        *flow
}

func (l *line) empty() bool { return l.first == nil }

// push adds a call to its tenant's flow and reports whether there was room.
func (l *line) push(c *call) bool {
	f := l.flowOf(c.tenant)
	if f == nil {
		f = l.newFlow(c.tenant)
	} else if f.tiers > maxWaiting {
		return false
	}
	if f.first == nil {
		f.first = c
	} else {
		f.last.next = c
	}
	f.last = c
	c.flow, c.waits = f, 0
	for i := range c.checks {
		c.waits += len(c.checks[i].Tiers)
	}
	f.tiers += c.waits
	return true
}

// flowOf returns a tenant's flow, or nil. Where one tenant waits alone, nothing is looked up.
func (l *line) flowOf(tenant int64) *flow {
	if l.last == nil || l.last.tenant == tenant {
		return l.last
	}
	return l.flows[tenant]
}

func (l *line) newFlow(tenant int64) *flow {
	f := l.spare
	if f == nil {
		f = &flow{}
	}
	l.spare = nil
	*f = flow{tenant: tenant}
	if l.flows == nil {
		l.flows = map[int64]*flow{}
	}
	l.flows[tenant] = f
	l.append(f)
	return f
}

func (l *line) append(f *flow) {
	if l.first == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

// rotate ends the visit of the first flow: it is visited last next time, or forgotten if nothing waits in it.
func (l *line) rotate() {
	f := l.first
	if l.first = f.next; l.first == nil {
		l.last = nil
	}
	f.next = nil
	if f.first != nil {
		l.append(f)
		return
	}
	delete(l.flows, f.tenant)
	l.spare = f
}

// shift removes the call that has waited longest from a flow.
func (f *flow) shift() *call {
	c := f.first
	f.first, c.next, c.flow = c.next, nil, nil
	f.tiers -= c.waits
	return c
}

// pop removes the call that is to lead the next batch, which counts as a visit to its flow.
func (l *line) pop() *call {
	c := l.first.shift()
	l.rotate()
	return c
}

// head returns the call that pop would remove.
func (l *line) head() *call { return l.first.first }

// alone reports whether only calls of one tenant wait.
func (l *line) alone(tenant int64) bool { return l.first == l.last && l.first.tenant == tenant }

// forgetEmpty forgets flows that became empty outside of a visit, and keeps the order of the others.
func (l *line) forgetEmpty() {
	for range len(l.flows) {
		l.rotate()
	}
}
