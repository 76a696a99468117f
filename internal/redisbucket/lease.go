package redisbucket

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

const grantBytes = 1 + 4*8 + 4 + 8 + 4 + 8 + limitBytes

// Lease implements enforce.Lender with lease.lua. It waits for its turn as checks do, in line with those of its tenant, and
// shares their round trips. It is never repeated, so a report is counted at most once.
func (s *Store) Lease(_ context.Context, leases []enforce.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	tiers := make([]enforce.Tier, len(leases))
	for i := range leases {
		leases[i].Answered = false
		tiers[i].Key = leases[i].Key
	}
	if err := s.submit([]enforce.BucketCheck{{Tiers: tiers, Leases: leases}}); err != nil {
		return fmt.Errorf("lease tokens of %d buckets in redis: %w", len(leases), err)
	}
	return nil
}

// addLeases makes the script a call of lease.lua, which describes the arguments.
func (s *script) addLeases(check *enforce.BucketCheck) {
	s.checks, s.leases = append(s.checks, check), check.Leases
}

func (s *script) leaseCommand(ctx context.Context, bySource bool, stamp int64) *noRetryCmd {
	args := []any{"evalsha", leaseSHA, len(s.leases)}
	if bySource {
		args = []any{"eval", leaseSource, len(s.leases)}
	}
	var limits, asks []byte
	calendars := uint16(0)
	for i := range s.leases {
		l := &s.leases[i]
		args = append(args, string(appendKey(nil, s.prefix, l.Key)))
		limits = appendLimit(limits, l.Limit, &calendars)
		for _, number := range []int64{l.Ask.Epoch, l.Ask.Presence, int64(l.Ask.Held), int64(l.Ask.Need), int64(l.Ask.Want), l.Ask.Since} {
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
			err = ErrUnknownVersion
		} else {
			s.leases[i].Grant, s.leases[i].Answered = grantAt(reply), true
		}
		reply = reply[grantBytes:]
	}
	s.checks[0].Answered = err == nil
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
