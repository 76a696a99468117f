package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/allowance"
	"github.com/sluicegate/sluice/internal/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/meter"
	"github.com/sluicegate/sluice/internal/rules"
)

// purse is what a request pays its work with; see package allowance.
type purse struct {
	meter  *meter.Meter
	caller allowance.Caller
	taken  *allowance.Decision // not settled yet; nil for none
	paid   time.Duration       // of the meter's work
}

// measured begins to measure a request's work.
func (s *surface) measured(r *http.Request) (*http.Request, *meter.Meter) {
	ctx, work := meter.With(r.Context(), s.processors)
	return r.WithContext(ctx), work
}

// paced is an answer whose writes are waits and not work, because a client can read slowly. Else the process would seem to compute
// meanwhile, and other requests would be charged too little.
type paced struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // of the request that is answered
}

func (p paced) Write(b []byte) (int, error) {
	defer meter.Wait(p.ctx)()
	return p.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (p paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// isLimited reports whether a route counts for allowances. Probes of health do not.
func isLimited(rt route) bool { return strings.HasPrefix(rt.path, "/api/") }

// guess returns whose allowance a request uses, as far as is known before the first query: the caller that sent the same
// credential to the same tenant before, else the client's network. So a denial costs no query.
func (s *surface) guess(q *apiRequest, rt route) allowance.Caller {
	if rt.least != anyone {
		if caller, ok := s.senders.of(s.credential(q.r), httpapi.PathParam(q.r, "tenant")); ok {
			return caller
		}
	}
	return s.stranger(q)
}

// stranger is a caller that is not known. Those of one network share an allowance.
func (s *surface) stranger(q *apiRequest) allowance.Caller {
	return allowance.Caller{Network: rules.SiteNetwork(clientIP(q.r, s.TrustedProxies))}
}

// mayBegin denies a request whose caller has used up an allowance, before anything is read. Strangers pay from here on.
func (s *surface) mayBegin(ctx context.Context, q *apiRequest, rt route) error {
	if s.Allowances == nil || !isLimited(rt) {
		return nil
	}
	q.purse.caller = s.guess(q, rt)
	if rt.least == anyone {
		return s.take(ctx, q)
	}
	return s.deny(ctx, q, s.Allowances.Look(ctx, q.purse.caller))
}

// mayGoOn takes from the allowances of a caller, once it is known or turned out not to be. A tenant pays for its members
// only.
func (s *surface) mayGoOn(ctx context.Context, q *apiRequest, rt route) error {
	if s.Allowances == nil || rt.least == anyone {
		return nil
	}
	p := &q.purse
	if q.actor.ID == "" {
		p.caller = s.stranger(q)
		return s.take(ctx, q)
	}
	p.caller = allowance.Caller{Account: q.caller().Account, IsPlatform: q.isPlatform()}
	if q.role != "" {
		p.caller.Tenant = q.tenant.ID
	}
	s.senders.remember(s.credential(q.r), httpapi.PathParam(q.r, "tenant"), p.caller)
	return s.take(ctx, q)
}

// stillMay looks again, when a request has waited for its place while others of the same caller ran.
func (s *surface) stillMay(ctx context.Context, q *apiRequest) error {
	if q.purse.taken == nil {
		return nil
	}
	return s.deny(ctx, q, s.Allowances.Look(ctx, q.purse.caller))
}

// take begins a new payment.
func (s *surface) take(ctx context.Context, q *apiRequest) error {
	decision := s.Allowances.Take(ctx, q.purse.caller)
	if err := s.deny(ctx, q, decision); err != nil {
		return err
	}
	q.purse.taken = decision
	showAllowances(q.w.Header(), &decision.Decision)
	return nil
}

// pay settles the work since the last payment.
func (s *surface) pay(ctx context.Context, q *apiRequest) {
	p := &q.purse
	if p.taken == nil {
		return
	}
	worked := p.meter.Worked()
	s.Allowances.Settle(ctx, p.taken, worked-p.paid)
	p.taken, p.paid = nil, worked
}

// pace pays for the part of a long answer that is done, and waits until the caller may have more. Other requests run
// meanwhile.
func (s *surface) pace(ctx context.Context, q *apiRequest) error {
	for wait := s.payOn(ctx, q); wait > 0; wait = s.payOn(ctx, q) {
		err := q.whileAway(ctx, func() error {
			defer meter.Wait(ctx)()
			pause := time.NewTimer(wait)
			defer pause.Stop()
			select {
			case <-pause.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// payOn pays and begins the next payment. If an allowance is used up, it returns how long until it is not.
func (s *surface) payOn(ctx context.Context, q *apiRequest) (wait time.Duration) {
	if s.Allowances == nil {
		return 0
	}
	s.pay(ctx, q)
	decision := s.Allowances.Take(ctx, q.purse.caller)
	if !decision.Allowed {
		_, wait = decision.Denial()
		return max(wait, time.Millisecond)
	}
	q.purse.taken = decision
	return 0
}

func showAllowances(h http.Header, decision *enforce.Decision) {
	var fields checkjson.Headers
	fields.AddAllowances(decision)
	for name, value := range fields.All() {
		h.Set(name, string(value))
	}
}

// deny returns the problem of a denial, or nil.
func (s *surface) deny(ctx context.Context, q *apiRequest, decision *allowance.Decision) error {
	class, wait := decision.Denial()
	if class == "" {
		return nil
	}
	if s.told.isNew(q.purse.caller, class, s.Now()) {
		s.Requests.Log.InfoContext(ctx, "an allowance of the admin API is used up", "class", class,
			"tenant", httpapi.PathParam(q.r, "tenant"), "caller", q.purse.caller.Account, "network", clientIP(q.r, s.TrustedProxies).String(),
			"wait", wait, "request_id", q.requestID)
	}
	showAllowances(q.w.Header(), &decision.Decision)
	return httpapi.LimitExceeded.Problem(fmt.Sprintf("%s; nothing was done. Wait %d seconds.", usedUp[class], wholeSeconds(wait)))
}

var usedUp = map[allowance.Class]string{
	allowance.Tenant:   "The members and API keys of this tenant have used the server for as long as one tenant may",
	allowance.Account:  "You have used the server for as long as one account or API key may",
	allowance.Platform: "You have used the server for as long as one platform admin or service key may",
	allowance.Network:  "Callers from your network have used the server for as long as they may",
}

// senders remembers the callers of credentials, by digests that cover the secret.
type senders struct {
	mu    sync.Mutex
	known map[sender]allowance.Caller
}

// sender is a credential and the slug of a tenant that it is sent to; "" is for whatever it is sent to.
type sender struct{ credential, tenant string }

// maxSenders bounds the memory: about 3 MB. One that is forgotten costs the queries of its next request.
const maxSenders = 10_000

// of returns the caller of a credential, without a tenant if it was not sent to this one before.
func (s *senders) of(credential, tenant string) (caller allowance.Caller, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if caller, ok = s.known[sender{credential, tenant}]; !ok {
		caller, ok = s.known[sender{credential, ""}]
	}
	return caller, ok
}

func (s *senders) remember(credential, tenant string, caller allowance.Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSenders {
		s.known = map[sender]allowance.Caller{}
	}
	if caller.Tenant != 0 { // slugs that name no tenant of the caller are the caller's invention
		s.known[sender{credential, strings.Clone(tenant)}] = caller
	}
	caller.Tenant = 0
	s.known[sender{credential, ""}] = caller
}

// told remembers which denials the log has, so that a loop adds a line a minute.
type told struct {
	mu sync.Mutex
	at map[toldOf]time.Time
}

type toldOf struct {
	caller allowance.Caller
	class  allowance.Class
}

func (t *told) isNew(caller allowance.Caller, class allowance.Class, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if class == allowance.Tenant {
		caller.Account = "" // one line for all of them
	} else {
		caller.Tenant = 0
	}
	of := toldOf{caller, class}
	if last, ok := t.at[of]; ok && now.Sub(last) < time.Minute {
		return false
	}
	if t.at == nil || len(t.at) >= maxSenders {
		t.at = map[toldOf]time.Time{}
	}
	t.at[of] = now
	return true
}
