package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

// inOneScript caps a call of lend.lua, because a script blocks Redis.
const inOneScript = 32

const grantBytes = 1 + 4*8 + 4 + 8 + 4 + 8 + limitBytes

// Lease implements enforce.Lender in its tenant's turn, and is never repeated, so a report is counted at most once.
func (s *Store) Lease(_ context.Context, leases []enforce.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	var calls []enforce.BucketCheck
	for some := range slices.Chunk(leases, inOneScript) {
		calls = append(calls, leaseCall(some))
	}
	err := s.untilRestored(leases[0].Key.Tenant, func() (lost []lostBucket, err error) {
		err = s.submit(calls)
		for i := range leases {
			if errors.Is(err, errLost) && !leases[i].Answered && s.isLong(leases[i].Limit) {
				lost = append(lost, s.lostBucketOf(leases[i].Key, leases[i].Limit))
			}
		}
		return lost, err
	})
	for i := range leases {
		if s.learner != nil && leases[i].Answered {
			s.learner.Learn(leases[i].Key.Bounded(), leases[i].Grant.State())
		}
	}
	if err != nil {
		return fmt.Errorf("lease tokens of %d buckets in redis: %w", len(leases), err)
	}
	return nil
}

func leaseCall(leases []enforce.Lease) enforce.BucketCheck {
	tiers := make([]enforce.Tier, len(leases))
	for i := range leases {
		leases[i].Answered = false
		tiers[i].Key = leases[i].Key
	}
	return enforce.BucketCheck{Tiers: tiers, Call: leases}
}

// leaseScript is a run of lend.lua for leases of one tenant.
type leaseScript struct {
	scriptRun
	store  *Store
	leases []*enforce.Lease
	keys   map[enforce.Key]struct{}
}

func (s *leaseScript) reset(store *Store) {
	s.scriptRun.reset()
	clear(s.leases)
	clear(s.keys)
	s.store, s.leases = store, s.leases[:0]
	if s.keys == nil {
		s.keys = map[enforce.Key]struct{}{}
	}
}

func (s *leaseScript) parts() int { return len(s.leases) }

// add refuses a call that would become too long or have a bucket twice.
func (s *leaseScript) add(check *enforce.BucketCheck, leases []enforce.Lease) bool {
	if len(s.checks) > 0 {
		if len(s.leases)+len(leases) > inOneScript {
			return false
		}
		for i := range leases {
			if _, twice := s.keys[leases[i].Key]; twice {
				return false
			}
		}
	}
	s.checks = append(s.checks, check)
	for i := range leases {
		if leases[i].Answered {
			continue
		}
		s.keys[leases[i].Key] = struct{}{}
		s.leases = append(s.leases, &leases[i])
	}
	return true
}

func (s *leaseScript) command(ctx context.Context, n *node, bySource bool, stamp int64) *noRetryCmd {
	args := append(slices.Clone(leaseSource.eval(bySource)), len(s.leases))
	var limits, asks []byte
	calendars := uint16(0)
	for i := range s.leases {
		l := s.leases[i]
		args = append(args, string(appendKey(nil, s.store.prefix, l.Key)))
		limits = appendLimit(limits, l.Limit, &calendars)
		for _, number := range []int64{
			l.Ask.Epoch, l.Ask.Presence, int64(l.Ask.Held), int64(l.Ask.Need), int64(l.Ask.Want), l.Ask.Since,
		} {
			asks = appendFloat(asks, float64(number))
		}
		asks = append(asks, byte(len(l.Ask.Returns)), byte(len(l.Ask.Returns)>>8))
		for _, r := range l.Ask.Returns {
			asks = appendFloat(appendFloat(appendFloat(asks, float64(r.Slot)), float64(r.Spent)), float64(r.Back))
		}
	}
	isLong := make([]byte, len(s.leases))
	for i := range s.leases {
		isLong[i] = asByte(s.store.isLong(s.leases[i].Limit))
	}
	if slices.Contains(isLong, 1) {
		tenant := s.leases[0].Key.Tenant
		args[2] = len(s.leases) + 1
		args = append(args, string(appendEraKey(nil, s.store.prefix, tenant)), limits, asks,
			someLong{eraExpected{n.eras, tenant}, isLong})
	} else {
		args = append(args, limits, asks)
		if stamp != 0 {
			args = append(args, "")
		}
	}
	if stamp != 0 {
		args = append(args, stamp)
	}
	return &noRetryCmd{redis.NewStringCmd(ctx, args...)}
}

func (s *leaseScript) readReply(reply string) (err error) {
	if len(reply) != 4+len(s.leases)*grantBytes {
		return fmt.Errorf("an unexpected reply of %d bytes to %d leases", len(reply), len(s.leases))
	}
	s.store.broken.Add(int64(uint32At(reply)))
	reply = reply[4:]
	for i := range s.leases {
		switch reply[0] {
		case 2:
			s.store.unknown.Add(1)
			err = nothingTaken(ErrUnknownVersion)
		case 3:
			if err == nil {
				err = nothingTaken(errLost)
			}
		default:
			s.leases[i].Grant, s.leases[i].Answered = grantAt(reply), true
		}
		reply = reply[grantBytes:]
	}
	for _, check := range s.checks {
		leases, _ := check.Call.([]enforce.Lease)
		check.Answered = !slices.ContainsFunc(leases, func(l enforce.Lease) bool { return !l.Answered })
	}
	return err
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
