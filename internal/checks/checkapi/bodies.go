package checkapi

import (
	"sync"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// maxHeld caps the bytes of large requests and answers in all connections; a tenant's share is a quarter. Decoding
	// a body takes about as much memory again.
	maxHeld      = 256 << 20
	maxHeldShare = maxHeld / 4
)

// bodies counts the memory of large requests and answers, because half-sent batches and unread answers could exhaust
// the process.
type bodies struct {
	max, share int // bytes, of all and of one tenant

	mu      sync.Mutex
	total   int
	tenants map[rules.TenantID]int
}

// reserve counts n bytes for a tenant, and reports whether they fit. Any request fits a tenant that holds nothing, so
// others cannot shut the tenant out.
func (b *bodies) reserve(tenant rules.TenantID, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.tenants[tenant]; held > 0 && (held+n > b.share || b.total+n > b.max) {
		return false
	}
	b.add(tenant, n)
	return true
}

func (b *bodies) adjust(tenant rules.TenantID, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(tenant, n)
}

func (b *bodies) add(tenant rules.TenantID, n int) {
	b.total += n
	if b.tenants[tenant] += n; b.tenants[tenant] == 0 {
		delete(b.tenants, tenant)
	}
}

// holds returns the bytes to count for a request with a body of this length. A usual check counts none, and a request
// with a possibly large answer at least one, so that countAnswer counts it.
func (r *route) holds(length int) int {
	held := 0
	switch {
	case !r.readsBody():
	case length == chunked:
		held = r.maxBody
	case length > keptBody || r.mayAnswerMuch():
		held = length
	}
	if r.mayAnswerMuch() {
		return max(held, 1)
	}
	return held
}

func (c *conn) reserveBody(a *admission, length int) bool {
	n := a.route.holds(length)
	if n == 0 {
		return true
	}
	if tenant := a.tenant.Tenant.ID; c.server.bodies.reserve(tenant, n) {
		c.holder, c.held = tenant, n
		return true
	}
	a.err = httpapi.Unavailable.Problem(
		"Too many large requests of this tenant are being sent or answered. Try again in a second; " +
			"send fewer at once, and read their answers.")
	return false
}

// countAnswer counts the memory of a large answer until it is written.
func (c *conn) countAnswer() {
	if n := len(c.ctx.Response.Body()); c.held > 0 && n > keptBody {
		c.server.bodies.adjust(c.holder, n)
		c.held += n
	}
}

func (c *conn) releaseBody() {
	if c.held > 0 {
		c.server.bodies.adjust(c.holder, -c.held)
		c.held = 0
	}
}
