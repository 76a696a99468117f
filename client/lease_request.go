package sluice

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

type leaseRequest struct {
	sent    lend.Instant
	handles []*Handle
	asks    []bucketAsk
	asked   map[*heldBucket]bool
	counts  []checkReport // by handle
	size    int           // approximate bytes
}

func (r *leaseRequest) isEmpty() bool { return len(r.handles)+len(r.asks) == 0 }

func (r *leaseRequest) add(b *heldBucket, ask *lend.Ask) {
	if r.asked == nil {
		r.asked = map[*heldBucket]bool{}
	}
	r.asks, r.asked[b] = append(r.asks, b.encode(ask)), true
	r.size += askBytes + len(b.id)
}

func (r *leaseRequest) addHandle(h *Handle) {
	r.handles = append(r.handles, h)
	r.size += askBytes + len(h.asked.body)
}

type checkReport struct {
	Check   json.RawMessage `json:"check"`
	Allowed int64           `json:"allowed,omitempty"`
	Denied  []ruleDenials   `json:"denied,omitempty"`
}

type ruleDenials struct {
	RuleID int64 `json:"rule_id"`
	Count  int64 `json:"count"`
}

func (h *Handle) takeReport() checkReport {
	r := checkReport{Check: json.RawMessage(h.asked.body), Allowed: h.allowed.TakeUpTo(h.mostReported())}
	for _, d := range h.denials {
		if count := d.count.TakeUpTo(maxReported); count > 0 && len(r.Denied) < maxTaken {
			r.Denied = append(r.Denied, ruleDenials{d.rule, count})
		} else {
			d.count.Add(count)
		}
	}
	return r
}

// mostReported bounds a report's allowed checks, because the server bounds their cost.
func (h *Handle) mostReported() int64 {
	const mostCost = 1e12 // tokens
	return max(1, min(maxReported, int64(mostCost/max(h.asked.cost, 1))))
}

func (h *Handle) putBack(r *checkReport) {
	h.allowed.Add(r.Allowed)
	for _, denied := range r.Denied {
		h.denialsOf(denied.RuleID).count.Add(denied.Count)
	}
}

func (r *checkReport) count() int64 {
	n := r.Allowed
	for _, d := range r.Denied {
		n += d.Count
	}
	return n
}

func (h *Handle) denialsOf(rule int64) *denials {
	for _, d := range h.denials {
		if d.rule == rule {
			return d
		}
	}
	d := &denials{rule: rule}
	h.denials = append(h.denials, d)
	return d
}

func (l *leases) send(ctx context.Context, r *leaseRequest) {
	body, err := l.encode(r)
	if err != nil { // checks, names and numbers always encode
		l.lost(r, &Error{Kind: KindRequest, Err: err})
		return
	}
	within, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	l.stats.renewals.Add(1)
	status, header, text, failed := l.client.send(within, http.MethodPost, leasesPath, body)
	if failed == nil && (status != http.StatusOK || !isJSON(header)) {
		failed = problem(status, text)
	}
	l.received(r, text, failed)
}

func (l *leases) encode(r *leaseRequest) ([]byte, error) {
	r.counts = make([]checkReport, len(r.handles))
	for i, h := range r.handles {
		r.counts[i] = h.takeReport()
	}
	return json.Marshal(struct {
		Holder  string        `json:"holder"`
		Checks  []checkReport `json:"checks,omitempty"`
		Buckets []bucketAsk   `json:"buckets,omitempty"`
	}{l.holder, r.counts, r.asks})
}
