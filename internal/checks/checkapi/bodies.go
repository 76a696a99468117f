package checkapi

import (
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/shares"
)

const (
	// maxHeld caps the bytes of large requests and answers; decoding takes about as much memory again.
	maxHeld      = 256 << 20
	maxHeldShare = maxHeld / 4
)

// A usual check counts no bytes, and one with a possibly large answer at least one, so that countAnswer counts it.
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
	if holder := (shares.Caller{Tenant: a.tenant.Tenant.ID}); c.server.bodies.Reserve(holder, n) == nil {
		c.holder, c.held = holder, n
		return true
	}
	a.err = httpapi.Unavailable.Problem(
		"Too many large requests of this tenant are being sent or answered. Try again in a second; " +
			"send fewer at once, and read their answers.")
	return false
}

func (c *conn) countAnswer() {
	if n := len(c.ctx.Response.Body()); c.held > 0 && n > keptBody {
		c.server.bodies.Add(c.holder, n)
		c.held += n
	}
}

func (c *conn) releaseBody() {
	if c.held > 0 {
		c.server.bodies.Add(c.holder, -c.held)
		c.held = 0
	}
}
