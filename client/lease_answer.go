package sluice

import (
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

type leaseAnswer struct {
	ValidMS int64 `json:"valid_ms"`
	Checks  []struct {
		How         string     `json:"how"`
		Plan        string     `json:"plan"`
		RetryJitter float64    `json:"retry_jitter_percent"`
		Buckets     []int      `json:"buckets"`
		BlockedBy   *leaseRule `json:"blocked_by"`
	} `json:"checks"`
	Buckets []struct {
		Bucket string `json:"bucket"`
		leaseRule
		Grant *bucketGrant `json:"grant"`
	} `json:"buckets"`
}

func (l *leases) received(r *leaseRequest, text []byte, failed *Error) {
	var answer leaseAnswer
	if failed == nil && (json.Unmarshal(text, &answer) != nil || !answer.fits(len(r.handles))) {
		failed = &Error{Kind: KindProtocol, Detail: "The answer to a request for leases cannot be read."}
	}
	if failed != nil {
		l.lost(r, failed)
		return
	}
	l.failed, l.retryAt = 0, 0
	if l.isWarned {
		l.isWarned = false
		l.client.config.Logger.Info("Sluice lends tokens again")
	}
	l.answered(r, &answer)
}

// fits validates counts and references.
func (a *leaseAnswer) fits(checks int) bool {
	if len(a.Checks) != checks {
		return false
	}
	for i := range a.Checks {
		c := &a.Checks[i]
		if len(c.Buckets) > maxTaken || c.How == howBlock && c.BlockedBy == nil || c.How == howLease &&
			len(c.Buckets) == 0 ||
			slices.ContainsFunc(c.Buckets, func(b int) bool { return b < 0 || b >= len(a.Buckets) }) {
			return false
		}
	}
	for i := range a.Buckets {
		b := &a.Buckets[i]
		if !(b.RatePerSecond > 0) || b.Burst < 1 || b.Grant != nil && b.Grant.Amount < 0 {
			return false
		}
	}
	return true
}

func (l *leases) answered(r *leaseRequest, answer *leaseAnswer) {
	now := l.clock()
	buckets := make([]*heldBucket, len(answer.Buckets))
	for i := range answer.Buckets {
		from := &answer.Buckets[i]
		b := l.buckets[from.Bucket]
		if b == nil {
			b = newHeldBucket(from.Bucket, &from.leaseRule, now)
			l.buckets[from.Bucket] = b
		}
		buckets[i] = b
		b.edited(&from.leaseRule)
		if from.Grant != nil && b.IsAsking() {
			b.granted(r.sent, now, &from.leaseRule, from.Grant)
		}
	}
	for b := range r.asked {
		if b.IsAsking() {
			b.Unanswered()
		}
	}
	life := min(time.Duration(max(0, answer.ValidMS))*time.Millisecond, time.Second)
	ends := r.sent.Plus(lend.OnStoresClock(life))
	for i, h := range r.handles {
		from := &answer.Checks[i]
		t := &terms{how: from.How, plan: from.Plan, jitter: from.RetryJitter, ends: ends, block: from.BlockedBy}
		if t.how == howBlock {
			t.denials = []*denials{h.denialsOf(t.block.RuleID)}
		}
		for _, at := range from.Buckets {
			b := buckets[at]
			b.Expect(h.cost)
			t.buckets = append(t.buckets, b)
			t.denials = append(t.denials, h.denialsOf(answer.Buckets[at].RuleID))
		}
		if t.how != howPass && t.how != howBlock && t.how != howLease {
			t.how = howAsk // including words of a later server
		}
		if !l.isClosing { // otherwise a handle in use would always have more to report
			h.terms.Store(t)
		}
		h.renewAt = now.Mono + int64(renewAfter)
	}
}

// lost handles a request without an answer. Reports of tokens are never repeated. Counts of decisions are, unless the
// server may have counted them or refused their check.
func (l *leases) lost(r *leaseRequest, failed *Error) {
	for b := range r.asked {
		b.Lost()
	}
	var network *net.OpError
	// Only the server writes problem documents. A proxy's answer, such as 504, says nothing about the server.
	uncounted := failed.Type != "" || errors.As(failed.Err, &network) && network.Op == "dial"
	refused := l.refuse(r, failed)
	for i, h := range r.handles {
		if uncounted && !refused[h] {
			h.putBack(&r.counts[i])
		} else {
			l.stats.unreported.Add(r.counts[i].count())
		}
	}
	if len(refused) > 0 {
		return // the others are asked for again without them
	}
	l.failed++
	pause := min(minLeasePause<<min(l.failed-1, 10), maxLeasePause)
	l.retryAt = l.clock().Mono + int64(pause)
	if failed.Kind == KindKey || failed.Kind == KindRequest || failed.Kind == KindProtocol {
		l.drop() // the key was revoked, the tenant suspended, or this server does not lend
		if !l.isWarned {
			l.isWarned = true
			l.client.config.Logger.Warn("Sluice lends no tokens; handles ask the server for each check", "error",
				failed)
		}
	}
}

func (l *leases) refuse(r *leaseRequest, failed *Error) (refused map[*Handle]bool) {
	if failed.Kind != KindRequest {
		return nil
	}
	refused = map[*Handle]bool{}
	for _, field := range failed.Fields {
		rest, ok := strings.CutPrefix(field.Pointer, "/checks/")
		number, _, _ := strings.Cut(rest, "/")
		if i, err := strconv.Atoi(number); ok && err == nil && i >= 0 && i < len(r.handles) {
			h := r.handles[i]
			h.terms.Store(nil)
			h.renewAt = l.clock().Mono + int64(refusedFor)
			refused[h] = true
		}
	}
	return refused
}
