package redisbucket

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

const grantBytes = 1 + 4*8 + 4 + 8 + 4 + 8 + limitBytes

var leaseScript = redis.NewScript(leaseSource)

// Lease implements enforce.Lender with lease.lua and Take's clock, budget and breaker. It is never repeated, so a report is
// counted at most once. The leases are of one tenant.
func (s *Store) Lease(ctx context.Context, leases []enforce.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	keys, args := s.leaseArgs(leases)
	reply, err := s.runLease(ctx, s.nodeOf(leases[0].Key), keys, args)
	if err != nil {
		return fmt.Errorf("lease tokens of %d buckets in redis: %w", len(leases), err)
	}
	if len(reply) != 4+len(leases)*grantBytes {
		return fmt.Errorf("lease tokens of %d buckets in redis: a reply of %d bytes", len(leases), len(reply))
	}
	s.broken.Add(int64(uint32At(reply)))
	reply = reply[4:]
	for i := range leases {
		if reply[0] == 2 {
			s.unknown.Add(1)
			err = ErrUnknownVersion
		} else {
			leases[i].Answered = true
			leases[i].Grant = grantAt(reply)
		}
		reply = reply[grantBytes:]
	}
	return err
}

func (s *Store) leaseArgs(leases []enforce.Lease) (keys []string, args []any) {
	var limits, asks []byte
	calendars := uint16(0)
	for i := range leases {
		l := &leases[i]
		l.Answered = false
		keys = append(keys, string(appendKey(nil, s.prefix, l.Key)))
		limits = appendLimit(limits, l.Limit, &calendars)
		for _, number := range []int64{l.Ask.Epoch, l.Ask.Presence, int64(l.Ask.Held), int64(l.Ask.Need), int64(l.Ask.Want), l.Ask.Since} {
			asks = appendFloat(asks, float64(number))
		}
		asks = append(asks, byte(len(l.Ask.Returns)), byte(len(l.Ask.Returns)>>8))
		for _, r := range l.Ask.Returns {
			asks = appendFloat(appendFloat(appendFloat(asks, float64(r.Slot)), float64(r.Spent)), float64(r.Back))
		}
	}
	args = []any{limits, asks}
	if stamp := s.stamp(); stamp != 0 {
		args = append(args, strconv.FormatInt(stamp, 10))
	}
	return keys, args
}

// runLease runs the script by its digest, or by its source if Redis does not know it, which then did not run.
func (s *Store) runLease(ctx context.Context, n *node, keys []string, args []any) (reply string, err error) {
	command := func(first ...any) []any {
		first = append(first, len(keys))
		for _, key := range keys {
			first = append(first, key)
		}
		return append(first, args...)
	}
	_, err = n.breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
		defer cancel()
		cmd := &noRetryCmd{redis.NewStringCmd(ctx, command("evalsha", leaseScript.Hash())...)}
		err := s.rdb.Process(ctx, cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			cmd = &noRetryCmd{redis.NewStringCmd(ctx, command("eval", leaseSource)...)}
			err = s.rdb.Process(ctx, cmd)
		}
		reply = cmd.Val()
		return struct{}{}, err
	})
	return reply, err
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
