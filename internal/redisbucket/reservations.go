package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// No rule has the id 0, so these are no buckets' keys.
func appendRecordKey(buf []byte, prefix string, tenant rules.TenantID, id enforce.ReservationID) []byte {
	buf = appendRule(buf, prefix, enforce.Key{Tenant: tenant})
	return append(append(buf, ":reservation "...), id.String()...)
}

func appendIndexKey(buf []byte, prefix string, tenant rules.TenantID) []byte {
	return append(appendRule(buf, prefix, enforce.Key{Tenant: tenant}), ":reservations"...)
}

// reservation is a record as settlement.lua describes it.
type reservation struct {
	text   string
	cost   enforce.Tokens
	key    string // the id of the API key
	keys   []string
	limits []enforce.Limit
}

const (
	recordVersion     = 1
	maxVersion        = 31 // see settle.lua
	recordHeaderBytes = 1 + 3*8 + 1
)

var errBrokenRecord = errors.New("the record of the reservation makes no sense; another program writes to this Redis")

func parseRecord(text string) (r reservation, err error) {
	if len(text) > 0 && text[0] > recordVersion && text[0] <= maxVersion {
		return r, ErrUnknownVersion
	}
	if len(text) < recordHeaderBytes || text[0] != recordVersion {
		return r, errBrokenRecord
	}
	r.text, r.cost = text, enforce.Tokens(float(text[9:]))
	end := recordHeaderBytes + int(text[recordHeaderBytes-1])
	if len(text) < end {
		return r, errBrokenRecord
	}
	r.key = text[recordHeaderBytes:end]
	for rest := text[end:]; rest != ""; {
		if len(rest) < 2 {
			return r, errBrokenRecord
		}
		size := int(rest[0]) | int(rest[1])<<8
		if len(rest) < 2+size+limitBytes+8 {
			return r, errBrokenRecord
		}
		r.keys = append(r.keys, rest[2:2+size])
		r.limits = append(r.limits, limitAt(rest[2+size:]))
		rest = rest[2+size+limitBytes+8:]
	}
	return r, nil
}

// The first byte of settlement.lua's reply.
const (
	recordGone    = 0
	recordChanged = 1
	recordUnknown = 2
)

// The acts of settlement.lua.
const (
	actKeep   = 0
	actCost   = 1
	actExtend = 2
)

// settleTries is how often a settlement reads the record: another caller may extend the reservation in between.
const settleTries = 3

// SettleReservation implements enforce.Reserver with settlement.lua, on Take's clock, budget and breaker. It takes two round
// trips: one to learn the buckets, which the script must name, and one to settle them.
func (s *Store) SettleReservation(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (settled enforce.Settled, err error) {
	recordKey := string(appendRecordKey(nil, s.prefix, tenant, id))
	var refusal error // which is no failure of Redis
	_, err = s.nodeOf(enforce.Key{Tenant: tenant}).breaker.Execute(func() (struct{}, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
		defer cancel()
		for range settleTries {
			text, err := s.rdb.Get(ctx, recordKey).Result()
			if errors.Is(err, redis.Nil) {
				return struct{}{}, nil
			}
			if err != nil {
				return struct{}{}, err
			}
			var again bool
			settled, again, err = s.settleRecord(ctx, tenant, id, text, with)
			if isRefusal := errors.Is(err, enforce.ErrRefundForbidden) || errors.Is(err, errBrokenRecord) ||
				errors.Is(err, ErrUnknownVersion); isRefusal {
				refusal = err
				return struct{}{}, nil
			}
			if !again || err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, errors.New("others keep changing the reservation; try again")
	})
	switch {
	case errors.Is(refusal, enforce.ErrRefundForbidden):
		return enforce.Settled{}, enforce.ErrRefundForbidden
	case refusal != nil:
		return enforce.Settled{}, fmt.Errorf("settle a reservation in redis: %w", refusal)
	case err != nil:
		return enforce.Settled{}, fmt.Errorf("settle a reservation in redis: %w", err)
	}
	return settled, nil
}

func (s *Store) settleRecord(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, text string, with enforce.Settlement,
) (settled enforce.Settled, again bool, err error) {
	record, err := parseRecord(text)
	if err != nil {
		if errors.Is(err, ErrUnknownVersion) {
			s.unknown.Add(1)
		}
		return settled, false, err
	}
	if with.Forbidden(record.key, record.cost) {
		return settled, false, enforce.ErrRefundForbidden
	}
	stamp := s.stamp()
	var limits, calendars []byte
	count := uint16(0)
	for i := range record.limits {
		limit := limitOf(record.keys[i], &with, record.limits[i])
		limits = appendLimit(limits, limit, &count)
		calendars = appendCalendar(calendars, limit, stamp)
	}
	act := append([]byte{actKeep}, appendFloat(nil, float64(with.Cost))...)
	switch {
	case with.Extend:
		act[0] = actExtend
	case with.HasCost:
		act[0] = actCost
	}
	args := []any{
		"eval", settlementSource, 2 + len(record.keys),
		string(appendRecordKey(nil, s.prefix, tenant, id)), string(appendIndexKey(nil, s.prefix, tenant)),
	}
	for _, key := range record.keys {
		args = append(args, key)
	}
	args = append(args, record.text, limits, calendars, act, id[:])
	if stamp != 0 {
		args = append(args, strconv.FormatInt(stamp, 10))
	}
	cmd := &noRetryCmd{redis.NewStringCmd(ctx, args...)}
	if err := s.rdb.Process(ctx, cmd); err != nil {
		return settled, false, err
	}
	reply := cmd.Val()
	if len(reply) < 9 {
		return settled, false, fmt.Errorf("a reply of %d bytes", len(reply))
	}
	switch reply[0] {
	case recordGone:
		return settled, false, nil
	case recordChanged:
		return settled, true, nil
	case recordUnknown:
		s.unknown.Add(1)
		return settled, false, ErrUnknownVersion
	}
	settled = enforce.Settled{Found: true, Charged: enforce.Tokens(float(reply[1:]))}
	if err := readWindows(&settled, tenant, record.keys, reply[9:]); err != nil {
		return enforce.Settled{}, false, err
	}
	return settled, false, nil
}

// readWindows reads the rest of settlement.lua's reply. keys are those of the record.
func readWindows(settled *enforce.Settled, tenant rules.TenantID, keys []string, reply string) error {
	const size = 2 + 2*8 + limitBytes
	if len(reply) < 8 || (len(reply)-8)%size != 0 {
		return fmt.Errorf("a reply with %d bytes of windows", len(reply))
	}
	stamp := int64(float(reply))
	for reply = reply[8:]; reply != ""; reply = reply[size:] {
		place := int(reply[0]) | int(reply[1])<<8
		if place >= len(keys) {
			return fmt.Errorf("a reply with a window of bucket %d of %d", place, len(keys))
		}
		rule, subject, isHashed, ok := parseKey(keys[place])
		if !ok || isHashed {
			continue
		}
		settled.AddWindow(enforce.Key{Tenant: tenant, Rule: rule, Subject: subject}, enforce.Bucket{
			Level: enforce.Level{Micros: enforce.Tokens(float(reply[2:]))}, Stamp: stamp, Limit: limitAt(reply[18:]),
		}, enforce.Tokens(float(reply[10:])))
	}
	return nil
}

// limitOf returns the limit to settle a bucket of a record by.
func limitOf(key string, with *enforce.Settlement, reserved enforce.Limit) enforce.Limit {
	rule, subject, isHashed, ok := parseKey(key)
	if !ok {
		return reserved
	}
	return with.LimitFor(rule, subject, isHashed, reserved)
}

// ForgottenReservations counts the reservations that ended without being settled. They are counted when their tenant
// reserves again.
func (s *Store) ForgottenReservations() int64 { return s.forgotten.Load() }

// appendReservation appends what take.lua needs of a reservation.
func appendReservation(buf []byte, r *enforce.Reservation) []byte {
	life := float64(min(r.Life, enforce.MaxReserveFor) / time.Microsecond)
	if r.Optional {
		life = -life
	}
	buf = appendFloat(buf, life)
	buf = append(buf, r.ID[:]...)
	return append(buf, r.Key[:min(len(r.Key), 255)]...)
}
