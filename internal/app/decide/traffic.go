package decide

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
)

func trafficBudget(cfg config.Config) traffic.Budget {
	return traffic.Budget{PerTenant: int64(cfg.TrafficTenantBudget) << 20, Total: int64(cfg.TrafficBudget) << 20}
}

// recordingTraffic passes decisions to a traffic.Recorder, because neither package may import the other.
type recordingTraffic struct{ recorder *traffic.Recorder }

var trafficChecks = sync.Pool{New: func() any { return new(traffic.Check) }}

const (
	reportSpan = 400 * time.Millisecond
	// maxRecorded caps the recorded checks of one report, because each takes a fraction of a microsecond. Above it
	// each decision of the report gets its share, rounded up.
	maxRecorded = 10_000
)

func (r recordingTraffic) Decided(tenant *snapshot.Tenant, check *enforce.Check, decision *enforce.Decision) {
	isUncharged := check.Record && (decision.Repeated || !decision.Allowed)
	if tenant.Tenant.Settings.RecordDays == 0 || check.IsLook() || isUncharged {
		return
	}
	c := trafficChecks.Get().(*traffic.Check)
	costs := c.Costs[:0]
	for _, cost := range check.Costs {
		costs = append(costs, traffic.Cost{
			Meter: cost.Meter, Amount: int64(cost.Cost), IsCounted: tenant.CountsMeter(cost.Meter),
		})
	}
	slices.SortFunc(costs, func(a, b traffic.Cost) int { return cmp.Compare(a.Meter, b.Meter) })
	*c = traffic.Check{
		Tenant: tenant.Tenant.ID, Settings: &tenant.Tenant.Settings, Request: &check.Request, Plan: decision.Plan,
		Cost: int64(check.Cost), Costs: costs, Denied: !decision.Allowed, Proxied: check.Proxied,
		Reserves: check.Reserve, IsReserved: decision.HasReservation, Record: check.Record,
	}
	if len(check.Attributes) > 0 {
		c.Named = tenant.NamesAttribute
	}
	// The bucket's clock, if one was read, has decided.
	for i := range decision.Tiers {
		if t := &decision.Tiers[i]; t.BucketRead && !decision.Recalled && !decision.Degraded {
			c.At = t.Stamp
			break
		}
	}
	if c.At == 0 {
		c.At = time.Now().UnixMicro()
	}
	if t := decision.DecidingTier(); t != nil && !decision.Allowed {
		c.Decider = t.Match.Rule.ID
		c.DeniedAlone = t.Match.Subject != "" && t.Match.Rule.Scope() != rules.ScopeEndpoint
	}
	n := decision.Count()
	c.Times = n
	if decision.Reported > 0 { // a client's decisions were spread over the time since its last report
		c.Span = reportSpan
	}
	if decision.Reported > maxRecorded {
		c.Times = int64(math.Ceil(float64(n) * maxRecorded / float64(decision.Reported)))
	}
	r.recorder.Record(c)
	r.recorder.Drop(c.Tenant, n-c.Times)
	*c = traffic.Check{Costs: costs[:0]}
	trafficChecks.Put(c)
}

// Settled corrects the counts of the check's month.
func (r recordingTraffic) Settled(tenant *snapshot.Tenant, settled *enforce.Settled) {
	if tenant.Tenant.Settings.RecordDays == 0 {
		return
	}
	for _, change := range settled.Changes {
		if tenant.CountsMeter(change.Meter) || change.Meter == "" {
			r.recorder.Settle(tenant.Tenant.ID, settled.CheckedAt, settled.User, change.Meter, int64(change.Cost))
		}
	}
}

func (recordingTraffic) StoreAnswered(time.Duration, error) {}
