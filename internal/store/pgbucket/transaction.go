package pgbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

type transaction struct {
	checks  []*enforce.BucketCheck
	indexes map[enforce.Key]int // of a key's row
	rows    []row
	order   []int // indexes of rows by key, in the order of their locks

	now int64 // microseconds since the Unix epoch

	part part // or nil

	opened    []opened         // the reservations that decide has opened
	forgets   []rules.TenantID // tenants whose ended reservations to delete
	forgotten int64            // number of reservations deleted

	remembered map[recordID]int64 // until when the ids of records are remembered; of those that decide added, too
	ids        []recordID         // of the records
	added      []recordID         // by decide

	held    []*enforce.State // of one check
	settled []enforce.State  // likewise
}

type part interface {
	ask(p *pgconn.Pipeline, statements *statements)
	read(values [][]byte)
	write(p *pgconn.Pipeline, statements *statements, now int64) int
}

type row struct {
	key    stored
	at     [6]byte // its ctid
	found  bool    // it exists and is locked
	holds  bool    // it has a bucket
	newer  bool    // in a format of a newer release
	before enforce.State
	state  enforce.State
}

func (r *row) isChanged(held bool) bool { return r.holds && (!held || r.state != r.before) }

var transactions = sync.Pool{New: func() any {
	return &transaction{indexes: map[enforce.Key]int{}, remembered: map[recordID]int64{}}
}}

func newTransaction() *transaction { return transactions.Get().(*transaction) }

func (t *transaction) release() {
	clear(t.checks)
	clear(t.indexes)
	clear(t.rows)
	clear(t.held[:cap(t.held)])
	clear(t.settled[:cap(t.settled)])
	clear(t.opened)
	t.checks, t.rows, t.order, t.part = t.checks[:0], t.rows[:0], t.order[:0], nil
	t.opened, t.forgets = t.opened[:0], t.forgets[:0]
	t.ids, t.added = t.ids[:0], t.added[:0]
	transactions.Put(t)
}

func (t *transaction) add(check *enforce.BucketCheck) {
	t.checks = append(t.checks, check)
	for i := range check.Tiers {
		t.index(check.Tiers[i].Key)
	}
	if check.Reserve != nil {
		t.index(counterOf(check.Tiers[0].Key.Tenant))
	}
	if check.HasRecordID() {
		id := recordIDOf(check)
		t.index(idCounterOf(id.tenant))
		t.ids = append(t.ids, id)
	}
}

func (t *transaction) index(key enforce.Key) int {
	i, ok := t.indexes[key]
	if !ok {
		i = len(t.rows)
		t.indexes[key] = i
		t.rows = append(t.rows, row{key: storedKey(key)})
		t.order = append(t.order, i)
	}
	return i
}

func (t *transaction) decideChecks(maxRecordIDs int64) {
	t.opened, t.added = t.opened[:0], t.added[:0]
	for _, check := range t.checks {
		if t.meetsNewer(check) {
			continue
		}
		n := len(check.Tiers)
		t.held, t.settled = slices.Grow(t.held[:0], n)[:n], slices.Grow(t.settled[:0], n)[:n]
		for i := range check.Tiers {
			r := &t.rows[t.indexes[check.Tiers[i].Key]]
			t.held[i] = nil
			if r.holds {
				t.held[i] = &r.state
			}
		}
		counter := t.counterOf(check)
		check.Exhausted = counter != nil && !counter.hasRoom()
		if check.Exhausted && check.Reserve.Optional {
			check.Exhausted = false
			check.Unreserve()
		}
		if check.HasRecordID() {
			t.checkRecordID(check, maxRecordIDs)
		}
		taken := check.TakeFrom(t.held, t.settled, t.now)
		if check.AddsRecordID() {
			t.addID(check, maxRecordIDs)
		}
		if check.Reserve != nil && check.Allowed && !check.Look {
			t.open(counter, check)
		}
		if !taken {
			continue
		}
		for i := range check.Tiers {
			if check.Takes(i) && t.held[i] == nil {
				r := &t.rows[t.indexes[check.Tiers[i].Key]]
				r.state, r.holds = t.settled[i], true
			}
		}
	}
}

func (t *transaction) meetsNewer(check *enforce.BucketCheck) bool {
	counter := t.counterOf(check)
	return counter != nil && counter.newer ||
		check.HasRecordID() && t.rows[t.indexes[idCounterOf(check.Tiers[0].Key.Tenant)]].newer ||
		slices.ContainsFunc(check.Tiers, func(tier enforce.Tier) bool { return t.rows[t.indexes[tier.Key]].newer })
}

func (t *transaction) markAnswered() (refused int) {
	for _, check := range t.checks {
		if check.Answered = !t.meetsNewer(check); !check.Answered {
			check.Allowed = false
			refused++
		}
	}
	return refused
}

// Each conflict of maxAttempts is about another new bucket, whose row the next attempt locks.
const maxAttempts = 8

func (s *Store) run(ctx context.Context, pool *pgxpool.Pool, t *transaction, decide func()) error {
	slices.SortFunc(t.order, func(a, b int) int { return t.rows[a].key.compare(t.rows[b].key) })
	err := s.retried(ctx, pool, func(conn *pgconn.PgConn) (bool, error) { return s.attempt(ctx, conn, t, decide) })
	if err == nil {
		s.forgotten.Add(t.forgotten)
	}
	return err
}

// retried repeats failures that changed nothing, on other connections.
func (s *Store) retried(ctx context.Context, pool *pgxpool.Pool,
	attempt func(*pgconn.PgConn) (mayHaveTaken bool, err error),
) error {
	for n := 1; ; n++ {
		changed, err := connected(ctx, pool, attempt)
		if err == nil || changed || n == maxAttempts || ctx.Err() != nil || isLockTimeout(err) || !mayPass(err) {
			return err
		}
	}
}

func connected(ctx context.Context, pool *pgxpool.Pool, attempt func(*pgconn.PgConn) (bool, error)) (mayHaveTaken bool,
	err error,
) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errConnect, err)
	}
	defer conn.Release() // closes a connection in a transaction
	return attempt(conn.Conn().PgConn())
}

func mayPass(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return !errors.Is(err, errConnect)
	}
	switch answer.Code {
	case "23505", "40001", "40P01": // unique_violation, serialization_failure, deadlock_detected
		return true
	case "22012": // division_by_zero, by absentSQL
		return true
	case "57P01", "57P02", "25P03": // the server shut down since, or ended an idle transaction
		return true
	}
	return false
}

func isLockTimeout(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "55P03"
}

var errConnect = errors.New("connect to postgres")

func (s *Store) attempt(ctx context.Context, conn *pgconn.PgConn, t *transaction, decide func()) (mayHaveTaken bool,
	err error,
) {
	p := conn.StartPipeline(ctx)
	defer func() {
		if closeErr := p.Close(); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	if err := s.lock(p, t); err != nil {
		return false, err
	}
	if err := s.forget(p, t); err != nil {
		return false, err
	}
	decide()
	return s.write(p, t)
}

var binaryFormat = []int16{1}

func (s *Store) lock(p *pgconn.Pipeline, t *transaction) error {
	statements := s.statements.Load()
	p.SendQueryStatement(statements.begin, nil, nil, nil)
	tenants, ruleIDs, subjects := t.keyParams(t.order)
	p.SendQueryStatement(statements.lock, [][]byte{tenants, ruleIDs, subjects}, binaryFormat, binaryFormat)
	if t.part != nil {
		t.part.ask(p, statements)
	}
	clear(t.remembered)
	if len(t.ids) > 0 {
		tenants, ids := idParams(t.ids)
		p.SendQueryStatement(statements.rememberedIDs, [][]byte{tenants, ids}, binaryFormat, binaryFormat)
	}
	var stamp []byte
	if now := s.stamp(); now != 0 {
		stamp = binary.BigEndian.AppendUint64(nil, uint64(now))
	}
	p.SendQueryStatement(statements.clock, [][]byte{stamp}, binaryFormat, binaryFormat)
	if err := p.Sync(); err != nil {
		return err
	}
	for i := range t.rows {
		t.rows[i] = row{key: t.rows[i].key}
	}
	if err := drain(p, nil); err != nil { // begin
		return err
	}
	if err := drain(p, func(values [][]byte) { s.readRow(t, values) }); err != nil {
		return err
	}
	if t.part != nil {
		if err := drain(p, t.part.read); err != nil {
			return err
		}
	}
	if len(t.ids) > 0 {
		if err := drain(p, t.readID); err != nil {
			return err
		}
	}
	if err := drain(p, func(values [][]byte) { t.now = int64(binary.BigEndian.Uint64(values[0])) }); err != nil {
		return err
	}
	return drain(p, nil) // sync
}

func (s *Store) readRow(t *transaction, values [][]byte) {
	position := int(binary.BigEndian.Uint64(values[0]))
	r := &t.rows[t.order[position-1]]
	r.found = true
	copy(r.at[:], values[1])
	r.state, r.newer, r.holds = enforce.ParseState(values[2])
	r.before = r.state
	if !r.holds && !r.newer {
		s.broken.Add(1) // it counts as a full bucket
	}
}

func (s *Store) write(p *pgconn.Pipeline, t *transaction) (mayHaveTaken bool, err error) {
	statements := s.statements.Load()
	var updated, inserted, absent []int
	for _, i := range t.order {
		r := &t.rows[i]
		switch held := r.before != (enforce.State{}); {
		case !r.isChanged(held):
			if !r.found {
				absent = append(absent, i)
			}
		case r.found:
			updated = append(updated, i)
		default:
			inserted = append(inserted, i)
		}
	}
	sent := 0
	if t.part != nil {
		sent += t.part.write(p, statements, t.now)
	}
	changes := len(updated)+len(inserted)+len(t.opened)+len(t.added)+sent > 0 || t.forgotten > 0
	if len(absent) > 0 {
		tenants, ruleIDs, subjects := t.keyParams(absent)
		p.SendQueryStatement(statements.absent, [][]byte{tenants, ruleIDs, subjects}, binaryFormat, nil)
		sent++
	}
	sent += 2 // with commit or rollback, and sync
	if len(inserted) > 0 {
		tenants, ruleIDs, subjects := t.keyParams(inserted)
		states, fullAts := t.stateParams(inserted)
		p.SendQueryStatement(statements.insert, [][]byte{tenants, ruleIDs, subjects, states, fullAts}, binaryFormat,
			nil)
		sent++
	}
	if len(updated) > 0 {
		states, fullAts := t.stateParams(updated)
		p.SendQueryStatement(statements.update, [][]byte{t.atParams(updated), states, fullAts}, binaryFormat, nil)
		sent++
	}
	if len(t.opened) > 0 {
		p.SendQueryStatement(statements.open, t.openedParams(), binaryFormat, nil)
		sent++
	}
	if len(t.added) > 0 {
		p.SendQueryStatement(statements.rememberIDs, t.addedParams(), binaryFormat, nil)
		sent++
	}
	if changes {
		p.SendQueryStatement(statements.commit, nil, nil, nil)
	} else {
		p.SendQueryStatement(statements.rollback, nil, nil, nil)
	}
	if err := p.Sync(); err != nil {
		return changes, err
	}
	for range sent {
		if err := drain(p, nil); err != nil {
			return changes && !isRolledBack(err), err
		}
	}
	return false, nil
}

// isRolledBack: the server answered a statement with an error; one that ends the connection may have committed before.
func isRolledBack(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR"
}

func drain(p *pgconn.Pipeline, read func(values [][]byte)) error {
	_, err := drainCount(p, read)
	return err
}

func drainCount(p *pgconn.Pipeline, read func(values [][]byte)) (rows int64, err error) {
	results, err := p.GetResults()
	if err != nil {
		return 0, err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return 0, nil
	}
	for reader.NextRow() {
		if read != nil {
			read(reader.Values())
		}
	}
	tag, err := reader.Close()
	return tag.RowsAffected(), err
}

func (t *transaction) keyParams(indexes []int) (tenants, ruleIDs, subjects []byte) {
	n := len(indexes)
	tenants = appendArray(make([]byte, 0, 20+12*n), oidInt8, n)
	ruleIDs = appendArray(make([]byte, 0, 20+12*n), oidInt8, n)
	subjects = appendArray(make([]byte, 0, 20+32*n), oidBytea, n)
	for _, i := range indexes {
		key := &t.rows[i].key
		tenants, ruleIDs, subjects = appendInt8(tenants, key.tenant), appendInt8(ruleIDs, key.rule),
			appendBytes(subjects, key.subject)
	}
	return tenants, ruleIDs, subjects
}

func (t *transaction) stateParams(indexes []int) (states, fullAts []byte) {
	n := len(indexes)
	states = appendArray(make([]byte, 0, 20+(enforce.StateBytes+4)*n), oidBytea, n)
	fullAts = appendArray(make([]byte, 0, 20+12*n), oidInt8, n)
	for _, i := range indexes {
		state := &t.rows[i].state
		states, fullAts = appendStateElement(states, state), appendInt8(fullAts, fullAt(state))
	}
	return states, fullAts
}

func (t *transaction) atParams(indexes []int) []byte {
	ats := appendArray(make([]byte, 0, 20+10*len(indexes)), oidTID, len(indexes))
	for _, i := range indexes {
		ats = appendBytes(ats, t.rows[i].at[:])
	}
	return ats
}
