package pgbucket

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

// Each open reservation of a tenant takes a token of a bucket that earns nothing; no rule has the id 0.
func counterOf(tenant rules.TenantID) enforce.Key {
	return enforce.Key{Tenant: tenant, Subject: "reservations"}
}

var counterLimit = enforce.Limit{Burst: enforce.MaxReservations}

func (t *transaction) counterOf(check *enforce.BucketCheck) *row {
	if check.Reserve == nil {
		return nil
	}
	return &t.rows[t.indexes[counterOf(check.Tiers[0].Key.Tenant)]]
}

func (r *row) hasRoom() bool { return !r.holds || r.state.Level.Micros >= enforce.Token }

func (r *row) count(n, now int64) {
	if !r.holds {
		r.state, r.holds = enforce.NewState(counterLimit, now), true
	}
	r.state.Stamp = now
	r.state.Level.Micros = min(r.state.Level.Micros-enforce.Tokens(n)*enforce.Token,
		enforce.MaxReservations*enforce.Token)
}

type opened struct {
	tenant rules.TenantID
	enforce.OpenReservation
}

func (t *transaction) open(counter *row, check *enforce.BucketCheck) {
	counter.count(1, t.now)
	t.opened = append(t.opened, opened{check.Tiers[0].Key.Tenant, check.Open(t.now)})
}

func (t *transaction) openedParams() [][]byte {
	n := len(t.opened)
	tenants, ids := appendArray(nil, oidInt8, n), appendArray(nil, oidBytea, n)
	records, ends := appendArray(nil, oidBytea, n), appendArray(nil, oidInt8, n)
	var record []byte
	for i := range t.opened {
		one := &t.opened[i]
		record = appendRecord(record[:0], &one.OpenReservation)
		tenants, ids = appendInt8(tenants, int64(one.tenant)), appendBytes(ids, one.ID[:])
		records, ends = appendBytes(records, record), appendInt8(ends, one.Ends)
	}
	return [][]byte{tenants, ids, records, ends}
}

// closedAtOnce reservations end at a time, while checks wait: as many as a batch opens.
const closedAtOnce = maxBatch

func (s *Store) forget(p *pgconn.Pipeline, t *transaction) error {
	t.forgotten = 0
	tenants := t.forgets
	for _, check := range t.checks {
		if counter := t.counterOf(check); counter != nil && counter.holds &&
			counter.state.Level.Micros < enforce.Tokens(len(t.checks))*enforce.Token {
			tenants = append(tenants, rules.TenantID(counter.key.tenant))
		}
	}
	slices.Sort(tenants)
	tenants = slices.DeleteFunc(slices.Compact(tenants),
		func(tenant rules.TenantID) bool { return t.rows[t.indexes[counterOf(tenant)]].newer })
	if len(tenants) == 0 {
		return nil
	}
	for _, tenant := range tenants {
		p.SendQueryStatement(s.statements.Load().closeEnded,
			[][]byte{int8Param(int64(tenant)), int8Param(t.now), int8Param(closedAtOnce)}, binaryFormat, nil)
	}
	if err := p.Sync(); err != nil {
		return err
	}
	for _, tenant := range tenants {
		n, err := drainCount(p, nil)
		if err != nil {
			return err
		}
		t.forgotten += n
		if counter := &t.rows[t.indexes[counterOf(tenant)]]; n > 0 && counter.holds {
			counter.count(-n, t.now)
		}
	}
	return drain(p, nil) // sync
}

// SettleReservation implements enforce.Reserver in three round trips: one reads the record, two are the transaction.
func (s *Store) SettleReservation(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (enforce.Settled, error) {
	settled, err := s.settleReservation(ctx, tenant, id, with)
	if err != nil && !errors.Is(err, enforce.ErrRefundForbidden) {
		return settled, fmt.Errorf("settle a reservation in postgres: %w", err)
	}
	enforce.LearnSettled(s.learner, &settled)
	return settled, err
}

func (s *Store) settleReservation(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (enforce.Settled, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
	defer cancel()
	release, err := s.changes.Take(ctx, shares.Caller{Tenant: tenant})
	if err != nil {
		return enforce.Settled{}, err
	}
	defer release()
	t := newTransaction()
	defer t.release()
	one := &settlement{tenant: tenant, id: id, with: with}
	var before []byte
	_, err = s.breaker.Execute(func() (struct{}, error) {
		record, err := s.readRecord(ctx, tenant, id)
		before = record
		if err != nil || record == nil {
			return struct{}{}, err
		}
		if !one.parse(record) {
			return struct{}{}, nil
		}
		t.index(counterOf(tenant))
		for _, charge := range one.reservation.Charges {
			t.order = append(t.order, len(t.rows))
			t.rows = append(t.rows, row{key: stored{int64(tenant), int64(charge.Key.Rule), charge.Key.Subject}})
		}
		t.part = one
		return struct{}{}, s.run(ctx, s.pool, t, func() { one.decide(t) })
	})
	if errors.Is(one.refusal, ErrUnknownVersion) {
		s.unknown.Add(1)
	}
	if err != nil || one.refusal != nil {
		return s.confirm(ctx, one, before, err), errors.Join(err, one.refusal)
	}
	return one.settled, nil
}

// confirm returns the Changes of a settlement without an answer, if the unexpired reservation changed.
func (s *Store) confirm(ctx context.Context, one *settlement, before []byte, err error) enforce.Settled {
	if len(one.settled.Changes) == 0 || errors.Is(err, enforce.ErrNothingTaken) {
		return enforce.Settled{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.budget)
	defer cancel()
	after, err := s.readRecord(ctx, one.tenant, one.id)
	return enforce.Settled{
		Found: err == nil && !bytes.Equal(after, before) && time.Now().Before(one.until),
		User:  one.settled.User, CheckedAt: one.settled.CheckedAt, Changes: one.settled.Changes,
	}
}

func (s *Store) readRecord(ctx context.Context, tenant rules.TenantID, id enforce.ReservationID) (record []byte,
	err error,
) {
	err = s.retried(ctx, s.pool, func(conn *pgconn.PgConn) (bool, error) {
		reader := conn.ExecStatement(ctx, s.statements.Load().record, [][]byte{int8Param(int64(tenant)), id[:]},
			binaryFormat, binaryFormat)
		for reader.NextRow() {
			record = bytes.Clone(reader.Values()[0])
		}
		_, err := reader.Close()
		return false, err
	})
	return record, err
}

type settlement struct {
	tenant      rules.TenantID
	id          enforce.ReservationID
	with        enforce.Settlement
	reservation enforce.OpenReservation

	held    bool      // the record exists and is locked
	ends    int64     // when
	until   time.Time // when it ends by the clock of this process
	settled enforce.Settled
	refusal error // not a failure of PostgreSQL
}

func (g *settlement) parse(record []byte) bool {
	g.reservation, g.refusal = parseRecord(record)
	for i := range g.reservation.Charges {
		g.reservation.Charges[i].Key.Tenant = g.tenant // the record leaves it out
	}
	g.reservation.ID = g.id
	return g.refusal == nil
}

func (g *settlement) ask(p *pgconn.Pipeline, statements *statements) {
	g.held, g.refusal = false, nil
	p.SendQueryStatement(statements.hold, [][]byte{int8Param(int64(g.tenant)), g.id[:]}, binaryFormat, binaryFormat)
}

func (g *settlement) read(values [][]byte) {
	g.held, g.ends = true, int64(binary.BigEndian.Uint64(values[0]))
	g.parse(values[1]) // it has grown if somebody extended it
}

func (g *settlement) decide(t *transaction) {
	g.settled = enforce.Settled{}
	if !g.held || g.ends <= t.now || g.refusal != nil {
		return
	}
	for i := range t.rows {
		if t.rows[i].newer {
			g.refusal = ErrUnknownVersion
			return
		}
	}
	if g.with.Forbidden(g.reservation.Key, g.reservation.Charges) {
		g.refusal = enforce.ErrRefundForbidden
		return
	}
	g.until = time.Now().Add(time.Duration(g.ends-t.now) * time.Microsecond)
	counter, buckets := &t.rows[0], t.rows[1:]
	g.settled = g.reservation.Settle(g.with, t.now,
		func(i int) *enforce.State {
			if buckets[i].holds {
				return &buckets[i].state
			}
			return nil
		},
		func(i int, state enforce.State) { buckets[i].state, buckets[i].holds = state, true })
	if !g.with.Extend && counter.holds {
		counter.count(-1, t.now)
	}
}

func (g *settlement) write(p *pgconn.Pipeline, statements *statements, _ int64) (sent int) {
	if !g.settled.Found || g.settled.Denied {
		return 0
	}
	tenant := int8Param(int64(g.tenant))
	if g.with.Extend {
		p.SendQueryStatement(statements.extend, [][]byte{
			tenant, g.id[:], int8Param(g.reservation.Ends), appendRecord(nil, &g.reservation),
		}, binaryFormat, nil)
	} else {
		p.SendQueryStatement(statements.close, [][]byte{tenant, g.id[:]}, binaryFormat, nil)
	}
	return 1
}

// ForgottenReservations counts reservations that ended unsettled, and that this process deleted.
func (s *Store) ForgottenReservations() int64 { return s.forgotten.Load() }

// endedSQL costs an index search per tenant with reservations.
const endedSQL = `WITH RECURSIVE tenant (id) AS (
    SELECT min(tenant_id) FROM bucket_reservation
    UNION ALL
    SELECT (SELECT min(tenant_id) FROM bucket_reservation WHERE tenant_id > tenant.id) FROM tenant
    	WHERE tenant.id IS NOT NULL
)
SELECT id FROM tenant
WHERE EXISTS (SELECT FROM bucket_reservation WHERE tenant_id = tenant.id
    AND ends_at <= coalesce($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))`

func (s *Store) forgetEnded(ctx context.Context) error {
	var now *int64
	if given := s.stamp(); given != 0 {
		now = &given
	}
	var tenants []rules.TenantID
	if err := bounded(ctx, func(ctx context.Context) error {
		rows, err := s.background.Query(ctx, endedSQL, now)
		if err != nil {
			return err
		}
		tenants, err = pgx.CollectRows(rows, pgx.RowTo[rules.TenantID])
		return err
	}); err != nil {
		return fmt.Errorf("find ended reservations: %w", err)
	}
	for len(tenants) > 0 {
		more := tenants[:0]
		for _, tenant := range tenants {
			isLast, err := s.forgetSome(ctx, tenant)
			if err != nil {
				return fmt.Errorf("delete ended reservations: %w", err)
			}
			if !isLast {
				more = append(more, tenant)
			}
			if err := pause(ctx, walkPause); err != nil {
				return err
			}
		}
		tenants = more
	}
	return nil
}

func (s *Store) forgetSome(ctx context.Context, tenant rules.TenantID) (isLast bool, err error) {
	t := newTransaction()
	defer t.release()
	t.index(counterOf(tenant))
	t.forgets = append(t.forgets, tenant)
	err = bounded(ctx, func(ctx context.Context) error { return s.run(ctx, s.background, t, func() {}) })
	return t.forgotten < closedAtOnce, err
}

// A record has the charges of a check, little-endian, and versions as buckets have.
//
//	version (byte)  time (int64)  cost (int64)  life in µs (int64)
//	length of the API key's id (byte)  that id
//	in version 2 also: the user and the costs, see AppendUse
//	for each bucket: rule (int64)  length of the subject (16 bits)  subject  kind (byte)
//	limit, as in a state (32 bytes)  charge (int64)
//	in version 2 also: 1 for a shadow rule, + 2 if it is charged after (byte)  length of its meter (byte)  meter
//
// Version 1 has only plain charges, and no user and costs.
const (
	plainVersion  = 1
	recordVersion = 2
	recordHeader  = 1 + 3*8 + 1
	limitBytes    = 1 + 4*8
)

func appendRecord(b []byte, r *enforce.OpenReservation) []byte {
	le := binary.LittleEndian
	version := byte(plainVersion)
	if r.Costs != nil || slices.ContainsFunc(r.Charges, func(c enforce.Charge) bool { return !c.IsPlain() }) {
		version = recordVersion
	}
	b = append(b, version)
	b = le.AppendUint64(b, uint64(r.CheckedAt))
	b = le.AppendUint64(b, uint64(r.Cost))
	b = le.AppendUint64(b, uint64(r.Life.Microseconds()))
	key := r.Key[:min(len(r.Key), math.MaxUint8)]
	b = append(append(b, byte(len(key))), key...)
	if version > plainVersion {
		b = r.AppendUse(b)
	}
	for i := range r.Charges {
		charge := &r.Charges[i]
		subject := storedKey(charge.Key).subject
		b = le.AppendUint64(b, uint64(charge.Key.Rule))
		b = append(le.AppendUint16(b, uint16(len(subject))), subject...)
		b = enforce.AppendLimit(append(b, byte(charge.Limit.Kind)), &charge.Limit)
		b = le.AppendUint64(b, uint64(charge.Amount))
		if version > plainVersion {
			b = append(append(b, modeOf(charge), byte(len(charge.Meter))), charge.Meter...)
		}
	}
	return b
}

func modeOf(c *enforce.Charge) (mode byte) {
	if c.Shadow {
		mode = 1
	}
	if c.After {
		mode += 2
	}
	return mode
}

var errBrokenRecord = errors.New("the record of the reservation is invalid; another program writes to its table")

func parseRecord(b []byte) (r enforce.OpenReservation, err error) {
	if len(b) > 0 && b[0] > recordVersion && b[0] <= enforce.MaxStateVersion {
		return r, ErrUnknownVersion
	}
	if len(b) < recordHeader || b[0] < plainVersion || b[0] > recordVersion ||
		len(b) < recordHeader+int(b[recordHeader-1]) {
		return r, errBrokenRecord
	}
	version := b[0]
	le := binary.LittleEndian
	r.CheckedAt, r.Cost = int64(le.Uint64(b[1:])), enforce.Tokens(le.Uint64(b[9:]))
	r.Life = time.Duration(le.Uint64(b[17:])) * time.Microsecond
	b = b[recordHeader-1:]
	r.Key, b = string(b[1:1+b[0]]), b[1+b[0]:]
	if version > plainVersion {
		if b, err = r.ParseUse(b); err != nil {
			return r, errBrokenRecord
		}
	}
	for len(b) > 0 {
		if len(b) < 10 || len(b) < 10+int(le.Uint16(b[8:]))+limitBytes+8 {
			return r, errBrokenRecord
		}
		var charge enforce.Charge
		charge.Key.Rule = rules.RuleID(le.Uint64(b))
		end := 10 + int(le.Uint16(b[8:]))
		charge.Key.Subject = string(b[10:end])
		charge.Limit = enforce.LimitAt(rules.Kind(b[end]), b[end+1:])
		charge.Amount = enforce.Tokens(le.Uint64(b[end+limitBytes:]))
		if b = b[end+limitBytes+8:]; version > plainVersion {
			if len(b) < 2 || len(b) < 2+int(b[1]) {
				return r, errBrokenRecord
			}
			charge.Shadow, charge.After = b[0]&1 != 0, b[0]&2 != 0
			charge.Meter, b = rules.Meter(b[2:2+b[1]]), b[2+b[1]:]
		}
		r.Charges = append(r.Charges, charge)
	}
	return r, nil
}
