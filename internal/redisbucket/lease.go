package redisbucket

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

const grantBytes = 1 + 4*8 + 4 + 8 + 4 + 8 + limitBytes

// Lease implements enforce.Lender with lease.lua. It waits for its turn as checks do, in line with those of its tenant, and
// shares their round trips. It is never repeated, so a report is counted at most once. Leases of several shards are several
// scripts, at the same time; so are many, where a script can reach all.
func (s *Store) Lease(_ context.Context, leases []enforce.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	var err error
	if s.keepsApart() {
		err = s.leaseApart(leases, time.Now())
	} else {
		var calls []enforce.BucketCheck
		for some := range slices.Chunk(leases, inOneReport) {
			calls = append(calls, leaseCall(some))
		}
		err = s.submit(calls)
	}
	if err != nil {
		return fmt.Errorf("lease tokens of %d buckets in redis: %w", len(leases), err)
	}
	return nil
}

func byShard(a, b enforce.Lease) int { return cmp.Compare(a.Key.Shard, b.Key.Shard) }

// leaseApart makes one call for each shard.
func (s *Store) leaseApart(leases []enforce.Lease, queuedAt time.Time) error {
	if slices.IsSortedFunc(leases, byShard) {
		return s.submitAt(leaseCalls(leases), queuedAt)
	}
	order := make([]int, len(leases))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return byShard(leases[a], leases[b]) })
	sorted := make([]enforce.Lease, len(leases))
	for i, at := range order {
		sorted[i] = leases[at]
	}
	err := s.submitAt(leaseCalls(sorted), queuedAt)
	for i, at := range order {
		leases[at] = sorted[i]
	}
	return err
}

// leaseCalls returns a call for each shard of leases that are sorted by it.
func leaseCalls(sorted []enforce.Lease) (calls []enforce.BucketCheck) {
	first := 0
	for i := range sorted {
		if end := i + 1; end == len(sorted) || sorted[end].Key.Shard != sorted[first].Key.Shard {
			calls = append(calls, leaseCall(sorted[first:end]))
			first = end
		}
	}
	return calls
}

// leaseCall returns a call of lease.lua as a check.
func leaseCall(leases []enforce.Lease) enforce.BucketCheck {
	tiers := make([]enforce.Tier, len(leases))
	for i := range leases {
		leases[i].Answered = false
		tiers[i].Key = leases[i].Key
	}
	return enforce.BucketCheck{Tiers: tiers, Leases: leases}
}

// addLeases adds leases of a check to a call of lease.lua, which describes the arguments, unless it would become too long, or have a
// bucket twice that is not only lent from. Leases that were answered before are left out.
func (s *script) addLeases(check *enforce.BucketCheck, leases []enforce.Lease) bool {
	if len(s.checks) > 0 {
		if len(s.leases)+len(leases) > inOneReport {
			return false
		}
		for i := range leases {
			if _, twice := s.places[leases[i].Key]; twice && !leases[i].Ask.Loan {
				return false
			}
		}
	}
	s.checks, s.isLease = append(s.checks, check), true
	for i := range leases {
		if leases[i].Answered {
			continue
		}
		if _, twice := s.places[leases[i].Key]; !twice {
			s.places[leases[i].Key] = len(s.leases)
		}
		s.leases = append(s.leases, &leases[i])
	}
	return true
}

func (s *script) leaseCommand(ctx context.Context, bySource bool, stamp int64) *noRetryCmd {
	args := []any{"evalsha", leaseSHA, len(s.leases)}
	if bySource {
		args = []any{"eval", leaseSource, len(s.leases)}
	}
	var limits, asks []byte
	calendars := uint16(0)
	for i := range s.leases {
		l := s.leases[i]
		args = append(args, string(appendKey(nil, s.prefix, l.Key)))
		limits = appendLimit(limits, l.Limit, &calendars)
		since := l.Ask.Since
		if l.Ask.Loan {
			since = -1
			if s.places[l.Key] != i {
				since = -2
			}
		}
		for _, number := range []int64{l.Ask.Epoch, l.Ask.Presence, int64(l.Ask.Held), int64(l.Ask.Need), int64(l.Ask.Want), since} {
			asks = appendFloat(asks, float64(number))
		}
		asks = append(asks, byte(len(l.Ask.Returns)), byte(len(l.Ask.Returns)>>8))
		for _, r := range l.Ask.Returns {
			asks = appendFloat(appendFloat(appendFloat(asks, float64(r.Slot)), float64(r.Spent)), float64(r.Back))
		}
	}
	args = append(args, limits, asks)
	if stamp != 0 {
		args = append(args, strconv.FormatInt(stamp, 10))
	}
	return &noRetryCmd{redis.NewStringCmd(ctx, args...)}
}

// readGrants reads a reply of lease.lua.
func (s *script) readGrants(reply string) (broken int, err error) {
	s.unknownTiers, s.forgotten = 0, 0
	if len(reply) != 4+len(s.leases)*grantBytes {
		return 0, fmt.Errorf("a reply of %d bytes to %d leases", len(reply), len(s.leases))
	}
	broken, reply = int(uint32At(reply)), reply[4:]
	for i := range s.leases {
		if reply[0] == 2 {
			s.unknownTiers++
			err = nothingTaken(ErrUnknownVersion)
		} else {
			s.leases[i].Grant, s.leases[i].Answered = grantAt(reply), true
		}
		reply = reply[grantBytes:]
	}
	for _, check := range s.checks {
		check.Answered = !slices.ContainsFunc(check.Leases, func(l enforce.Lease) bool { return !l.Answered })
	}
	return broken, err
}

func grantAt(b string) enforce.Grant {
	return enforce.Grant{
		Refused: b[0] == 1,
		Amount:  enforce.Tokens(float(b[1:])), Slot: int64(float(b[9:])), Epoch: int64(float(b[17:])),
		Level: enforce.Level{Micros: enforce.Tokens(float(b[25:])), Fraction: uint32At(b[33:])},
		Out:   enforce.Tokens(float(b[37:])), Holders: int64(uint32At(b[45:])), Wait: int64(float(b[49:])),
		Limit: limitAt(b[57:]),
	}
}

var _ enforce.Lender = (*Store)(nil)
