package combine

import "github.com/sluicegate/sluice/internal/rules"

const (
	// quantum is a visit's deficit in tiers: sixteen checks of four.
	quantum = 64
	// maxWaiting caps a tenant's queued tiers: more are not decided within half of the budget.
	maxWaiting = 1 << 16
)

// fairQueue has a first-in first-out flow per tenant. Flows take turns by deficit round robin (Shreedhar, Varghese,
// SIGCOMM 1995), so a flood waits behind itself.
type fairQueue struct {
	flows       map[rules.TenantID]*flow // by tenant
	first, last *flow                    // in the order of their turns
	spare       *flow                    // dropped, for reuse
}

type flow struct {
	tenant      rules.TenantID
	first, last *Call
	tiers       int // of all its calls
	deficit     int // how many tiers it may still send
	next        *flow
}

func (q *fairQueue) empty() bool { return q.first == nil }

func (q *fairQueue) push(c *Call, tiers int) bool {
	f := q.flowOf(c.tenant)
	if f == nil {
		f = q.newFlow(c.tenant)
	} else if f.tiers > maxWaiting {
		return false
	}
	if f.first == nil {
		f.first = c
	} else {
		f.last.next = c
	}
	f.last = c
	c.flow, c.queuedTiers = f, tiers
	f.tiers += tiers
	return true
}

func (q *fairQueue) flowOf(tenant rules.TenantID) *flow {
	if q.last == nil || q.last.tenant == tenant {
		return q.last
	}
	return q.flows[tenant]
}

func (q *fairQueue) newFlow(tenant rules.TenantID) *flow {
	f := q.spare
	if f == nil {
		f = &flow{}
	}
	q.spare = nil
	*f = flow{tenant: tenant}
	if q.flows == nil {
		q.flows = map[rules.TenantID]*flow{}
	}
	q.flows[tenant] = f
	q.append(f)
	return f
}

func (q *fairQueue) append(f *flow) {
	if q.first == nil {
		q.first = f
	} else {
		q.last.next = f
	}
	q.last = f
}

func (q *fairQueue) rotate() {
	f := q.first
	if q.first = f.next; q.first == nil {
		q.last = nil
	}
	f.next = nil
	if f.first != nil {
		q.append(f)
		return
	}
	delete(q.flows, f.tenant)
	q.spare = f
}

func (f *flow) shift() *Call {
	c := f.first
	f.first, c.next, c.flow = c.next, nil, nil
	f.tiers -= c.queuedTiers
	return c
}

func (q *fairQueue) pop() *Call {
	c := q.first.shift()
	q.rotate()
	return c
}

func (q *fairQueue) head() *Call { return q.first.first }

func (q *fairQueue) alone(tenant rules.TenantID) bool {
	return q.first == q.last && q.first.tenant == tenant
}

func (q *fairQueue) dropEmpty() {
	for range len(q.flows) {
		q.rotate()
	}
}
