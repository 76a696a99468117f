package sluice

import (
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

// heldBucket is this process's lease of a bucket.
type heldBucket struct {
	*lend.Bucket
	id    string
	level atomic.Int64 // the store's, after the last grant
	rule  atomic.Pointer[leaseRule]
}

type leaseRule struct {
	RuleID        int64   `json:"rule_id"`
	Name          string  `json:"name"`
	Scope         string  `json:"scope"`
	KeyPattern    string  `json:"key_pattern"`
	Mode          string  `json:"mode"`
	RatePerSecond float64 `json:"rate_per_second"`
	Burst         int64   `json:"burst_capacity"`
	Since         int64   `json:"since"`
}

func (r *leaseRule) isEnforced() bool { return r.Mode == "enforce" }

func (r *leaseRule) limit() lend.Limit {
	return lend.Limit{Rate: r.RatePerSecond, Burst: r.Burst, Since: r.Since}
}

func newHeldBucket(id string, rule *leaseRule, now lend.Instant) *heldBucket {
	b := &heldBucket{Bucket: lend.New(rule.limit(), now), id: id}
	b.rule.Store(rule)
	return b
}

// edited updates the rule, unless the answer's is older.
func (b *heldBucket) edited(rule *leaseRule) {
	if rule.Since >= b.rule.Load().Since {
		b.rule.Store(rule)
		b.Edited(rule.limit())
	}
}

func (b *heldBucket) granted(sent, now lend.Instant, rule *leaseRule, grant *bucketGrant) {
	b.level.Store(int64(grant.Level))
	b.Answered(sent, now, &lend.Grant{
		Amount: lend.Tokens(grant.Amount), Slot: grant.Slot, Epoch: grant.Epoch, Holders: grant.Holders,
		Limit: rule.limit(), Pause: time.Duration(min(max(0, grant.PauseUS), 1e6)) * time.Microsecond,
	})
}

// bucketAsk is the encoding of a lend.Ask.
type bucketAsk struct {
	Bucket   string         `json:"bucket"`
	Epoch    int64          `json:"epoch"`
	Presence int64          `json:"presence"`
	Held     decimal        `json:"held"`
	Want     decimal        `json:"want"`
	Returns  []bucketReturn `json:"returns,omitempty"`
}

type bucketReturn struct {
	Slot  int64   `json:"slot"`
	Spent decimal `json:"spent"`
	Back  decimal `json:"back"`
}

// bucketGrant is the answer to a bucketAsk.
type bucketGrant struct {
	Amount  decimal `json:"amount"`
	Slot    int64   `json:"slot"`
	Epoch   int64   `json:"epoch"`
	Level   decimal `json:"level"`
	Holders int64   `json:"holders"`
	PauseUS int64   `json:"pause_us"`
}

func (b *heldBucket) encode(ask *lend.Ask) bucketAsk {
	text := bucketAsk{
		Bucket: b.id, Epoch: ask.Epoch, Presence: ask.Presence, Held: decimal(ask.Held), Want: decimal(ask.Want),
	}
	for _, r := range ask.Returns {
		text.Returns = append(text.Returns, bucketReturn{r.Slot, decimal(r.Spent), decimal(r.Back)})
	}
	return text
}
