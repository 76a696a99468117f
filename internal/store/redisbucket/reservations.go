package redisbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// No rule has the id 0.
func appendReservationKey(buf []byte, prefix string, tenant rules.TenantID, id enforce.ReservationID) []byte {
	buf = appendRule(buf, prefix, tenant, 0)
	return append(append(buf, ":reservation "...), id.String()...)
}

func appendIndexKey(buf []byte, prefix string, tenant rules.TenantID) []byte {
	return append(appendRule(buf, prefix, tenant, 0), ":reservations"...)
}

func appendEraKey(buf []byte, prefix string, tenant rules.TenantID) []byte {
	return append(appendRule(buf, prefix, tenant, 0), ":era"...)
}

func appendRecordIDsKey(buf []byte, prefix string, tenant rules.TenantID) []byte {
	return append(appendRule(buf, prefix, tenant, 0), ":records"...)
}

type reservation struct {
	enforce.Reservation // without the id
	text                string
	checkedAt           int64
	cost                enforce.Tokens
	meters              string // of the tiers, as in text
	charged             int    // where the charges begin in text
	keys                []string
	charges             []enforce.Charge // with a key if it is of this version; see parseKey
}

const (
	plainVersion           = 1
	reservationVersion     = 2
	maxVersion             = 31 // see bucket.lua
	reservationHeaderBytes = 1 + 3*8 + 1
)

var errBrokenReservation = errors.New("the stored reservation is invalid; another program writes to this Redis")

func parseReservation(text string) (r reservation, err error) {
	if len(text) > 0 && text[0] > reservationVersion && text[0] <= maxVersion {
		return r, ErrUnknownVersion
	}
	if len(text) < reservationHeaderBytes || text[0] < plainVersion || text[0] > reservationVersion {
		return r, errBrokenReservation
	}
	r.text, r.checkedAt, r.cost = text, int64(float(text[1:])), enforce.Tokens(float(text[9:]))
	end := reservationHeaderBytes + int(text[reservationHeaderBytes-1])
	if len(text) < end {
		return r, errBrokenReservation
	}
	r.Key = text[reservationHeaderBytes:end]
	rest := text[end:]
	var meters []string // of the tiers, after an empty one
	if text[0] > plainVersion {
		const length = 4
		if len(rest) < length || len(rest)-length < int(uint32At(rest)) {
			return r, errBrokenReservation
		}
		end := length + int(uint32At(rest))
		use, err := r.ParseUse([]byte(rest[length:end]))
		if err != nil {
			return r, errBrokenReservation
		}
		r.meters, rest = string(use), rest[end:]
		meters = strings.Split(r.meters, "\x00")
	}
	r.charged = len(text) - len(rest)
	for rest != "" {
		if len(rest) < 2 {
			return r, errBrokenReservation
		}
		size := uint16At(rest)
		if len(rest) < 2+size+limitBytes+8 {
			return r, errBrokenReservation
		}
		r.keys = append(r.keys, rest[2:2+size])
		charge := enforce.Charge{
			Limit: limitAt(rest[2+size:]), Amount: enforce.Tokens(float(rest[2+size+limitBytes:])),
		}
		charge.Key.Rule, charge.Key.Subject, _, _ = parseKey(rest[2 : 2+size])
		if tier := uint16At(rest[2+size+limitBytes-2:]); meters != nil {
			if tier/4+1 >= len(meters) {
				return r, errBrokenReservation
			}
			charge.Meter, charge.Shadow, charge.After = rules.Meter(meters[tier/4+1]), tier&1 != 0, tier&2 != 0
		}
		r.charges = append(r.charges, charge)
		rest = rest[2+size+limitBytes+8:]
	}
	return r, nil
}

const (
	reservationGone    = 0
	reservationChanged = 1
	extensionFails     = 4
)

const (
	actSettle = 0
	actExtend = 1
)

// settleTries: another caller may extend the reservation after a read.
const settleTries = 3

// SettleReservation implements enforce.Reserver in two round trips: the first reads which buckets the second script
// must name.
func (s *Store) SettleReservation(
	_ context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (settled enforce.Settled, err error) {
	for range settleTries {
		text, until, err := s.stored(tenant, id)
		again := false
		if err == nil && text != "" {
			settled, again, err = s.settleStored(tenant, id, text, with)
		}
		switch {
		case errors.Is(err, enforce.ErrRefundForbidden):
			return enforce.Settled{}, enforce.ErrRefundForbidden
		case err != nil:
			settled = s.confirm(tenant, id, text, until, settled, err)
			return settled, fmt.Errorf("settle a reservation in redis: %w", err)
		case !again:
			enforce.LearnSettled(s.learner, &settled)
			return settled, nil
		}
	}
	return enforce.Settled{}, errors.New(
		"settle a reservation in redis: other callers keep changing the reservation; try again")
}

// stored also returns until when the reservation is open at least.
func (s *Store) stored(tenant rules.TenantID, id enforce.ReservationID) (text string, until time.Time, err error) {
	start := time.Now()
	reply, err := s.run(tenant, &call{source: storedSource, weight: 1, args: []any{id[:]}, keys: []string{
		string(appendReservationKey(nil, s.prefix, tenant, id)), string(appendIndexKey(nil, s.prefix, tenant)),
	}})
	if err == nil && len(reply) < 8 {
		err = fmt.Errorf("an unexpected reply of %d bytes", len(reply))
	}
	if err != nil {
		return "", start, err
	}
	return reply[8:], start.Add(time.Duration(float(reply)) * time.Microsecond), nil
}

// confirm returns the Changes of a settlement without an answer, if the unexpired reservation changed.
func (s *Store) confirm(
	tenant rules.TenantID, id enforce.ReservationID, before string, until time.Time, settled enforce.Settled, err error,
) enforce.Settled {
	if len(settled.Changes) == 0 || errors.Is(err, enforce.ErrNothingTaken) {
		return enforce.Settled{}
	}
	after, _, err := s.stored(tenant, id)
	settled.Found = err == nil && after != before && time.Now().Before(until)
	return settled
}

func (s *Store) settleStored(
	tenant rules.TenantID, id enforce.ReservationID, text string, with enforce.Settlement,
) (settled enforce.Settled, again bool, err error) {
	stored, err := parseReservation(text)
	if err != nil {
		if errors.Is(err, ErrUnknownVersion) {
			s.unknown.Add(1)
		}
		return settled, false, err
	}
	if with.Forbidden(stored.Key, stored.charges) {
		return settled, false, enforce.ErrRefundForbidden
	}
	settled.User, settled.CheckedAt, settled.Changes = stored.User, stored.checkedAt, stored.Change(&with)
	toBuckets, long := s.settleCall(tenant, id, &stored, &with)
	var reply string
	err = s.untilRestored(tenant, func() (lost []lostBucket, err error) {
		reply, err = s.run(tenant, toBuckets)
		switch {
		case err != nil:
		case reply == "":
			err = fmt.Errorf("an unexpected reply of %d bytes", len(reply))
		default:
			err = s.refusal(reply[0])
		}
		return long, err
	})
	if err != nil {
		return settled, false, err
	}
	switch reply[0] {
	case reservationGone:
		return enforce.Settled{}, false, nil
	case reservationChanged:
		return enforce.Settled{}, true, nil
	case extensionFails:
		return enforce.Settled{Found: true, Denied: true}, false, nil
	}
	final := make([]enforce.Tokens, len(stored.keys))
	if len(reply) < 1+8*len(final) {
		return enforce.Settled{}, false, fmt.Errorf("an unexpected reply of %d bytes", len(reply))
	}
	for i := range final {
		final[i] = enforce.Tokens(float(reply[1+8*i:]))
	}
	changes := settled.Changes
	settled = with.Settled(stored.cost, stored.charges, final)
	settled.User, settled.CheckedAt, settled.Changes = stored.User, stored.checkedAt, changes
	if err := readSettledBuckets(&settled, tenant, stored.keys, reply[1+8*len(final):]); err != nil {
		return enforce.Settled{}, false, err
	}
	return settled, false, nil
}

// settleCall also returns the buckets of long limits, which may be lost.
func (s *Store) settleCall(
	tenant rules.TenantID, id enforce.ReservationID, stored *reservation, with *enforce.Settlement,
) (c *call, long []lostBucket) {
	stamp := s.stamp()
	var limits, calendars, canDeny []byte
	count := uint16(0)
	act := []byte{actSettle}
	isLong := make([]byte, len(stored.keys))
	for i, key := range stored.keys {
		charge := &stored.charges[i]
		limit := limitOf(key, with, charge.Limit)
		limits = appendLimit(limits, limit, &count)
		calendars = appendCalendar(calendars, limit, stamp)
		cost, ok := with.CostOf(charge.Meter)
		if !ok {
			cost = enforce.NotCounted
		}
		act = appendFloat(act, float64(cost))
		if with.Extend {
			canDeny = append(canDeny, asByte(with.CanDeny(charge)))
		}
		if isLong[i] = asByte(s.isLong(limit)); isLong[i] == 1 {
			long = append(long, lostBucket{key, placeOfKey(tenant, key), limit})
		}
	}
	if with.Extend {
		act[0] = actExtend
		act = appendOwner(append(act, canDeny...), stored.text[0], &stored.Reservation, stored.meters)
	}
	c = &call{source: reservationSource, weight: ownScript(len(stored.keys))}
	c.keys = append([]string{
		string(appendReservationKey(nil, s.prefix, tenant, id)), string(appendIndexKey(nil, s.prefix, tenant)),
	}, stored.keys...)
	c.args = []any{stored.text, limits, calendars, act, id[:]}
	if long != nil {
		c.keys = append(c.keys, string(appendEraKey(nil, s.prefix, tenant)))
		c.args = append(c.args, someLong{s.eraExpected(tenant), isLong})
	} else if stamp != 0 {
		c.args = append(c.args, "")
	}
	if stamp != 0 {
		c.args = append(c.args, stamp)
	}
	return c, long
}

func asByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// placeOfKey is the inverse of appendKey for a bounded key.
func placeOfKey(tenant rules.TenantID, key string) enforce.Key {
	rule, subject, isHashed, _ := parseKey(key)
	if isHashed {
		return enforce.KeyOfDigest(tenant, rule, subject)
	}
	return enforce.Key{Tenant: tenant, Rule: rule, Subject: subject}
}

func readSettledBuckets(settled *enforce.Settled, tenant rules.TenantID, keys []string, reply string) error {
	const size = 2 + 8 + 4 + 8 + 8 + limitBytes
	if len(reply) < 8 || (len(reply)-8)%size != 0 {
		return fmt.Errorf("a reply with %d bytes of buckets", len(reply))
	}
	stamp := int64(float(reply))
	for reply = reply[8:]; reply != ""; reply = reply[size:] {
		index := uint16At(reply)
		if index >= len(keys) {
			return fmt.Errorf("a reply with bucket %d of %d", index, len(keys))
		}
		level := enforce.Level{Micros: enforce.Tokens(float(reply[2:])), Fraction: uint32At(reply[10:])}
		settled.Add(placeOfKey(tenant, keys[index]), enforce.State{
			Bucket: enforce.Bucket{Level: level, Stamp: stamp, Limit: limitAt(reply[30:])},
			Former: enforce.Tokens(float(reply[14:])),
		}, enforce.Tokens(float(reply[22:])))
	}
	return nil
}

func limitOf(key string, with *enforce.Settlement, reserved enforce.Limit) enforce.Limit {
	rule, subject, isHashed, ok := parseKey(key)
	if !ok {
		return reserved
	}
	return with.LimitFor(rule, subject, isHashed, reserved)
}

// ForgottenReservations counts unsettled ones that ended, once their tenant reserves again.
func (s *Store) ForgottenReservations() int64 { return s.forgotten.Load() }

func appendReservation(buf []byte, r *enforce.Reservation, tiers []enforce.Tier) []byte {
	life := float64(min(r.Life, enforce.MaxReserveFor) / time.Microsecond)
	if r.Optional {
		life = -life
	}
	buf = appendFloat(buf, life)
	buf = append(buf, r.ID[:]...)
	version := byte(plainVersion)
	if r.Costs != nil {
		version = reservationVersion
	}
	var meters []byte
	for i := range tiers {
		tier := &tiers[i]
		if tier.Meter != "" || tier.Shadow || tier.After {
			version = reservationVersion
		}
		meters = append(append(meters, 0), tier.Meter...)
	}
	return appendOwner(append(buf, version), version, r, string(meters))
}

func appendOwner(buf []byte, version byte, r *enforce.Reservation, meters string) []byte {
	key := r.Key[:min(len(r.Key), 255)]
	buf = append(append(buf, byte(len(key))), key...)
	if version == plainVersion {
		return buf
	}
	at := len(buf)
	buf = append(r.AppendUse(append(buf, 0, 0, 0, 0)), meters...)
	binary.LittleEndian.PutUint32(buf[at:], uint32(len(buf)-at-4))
	return buf
}

func uint16At(s string) int { return int(s[0]) | int(s[1])<<8 }
