package pgbucket

import (
	"encoding/binary"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

type recordID struct {
	tenant rules.TenantID
	id     enforce.RecordID
}

func recordIDOf(check *enforce.BucketCheck) recordID {
	return recordID{check.Tiers[0].Key.Tenant, check.RecordID}
}

// A log counts a tenant's record ids by the second, so that it is short; no rule has the id 0.
func idCounterOf(tenant rules.TenantID) enforce.Key {
	return enforce.Key{Tenant: tenant, Subject: "records"}
}

const second = int64(time.Second / time.Microsecond)

func (t *transaction) idCounter(id recordID, most int64) *row {
	r := &t.rows[t.indexes[idCounterOf(id.tenant)]]
	now := t.now - t.now%second
	limit := enforce.Limit{
		Kind: rules.KindSlidingWindowLog, Burst: most,
		Interval: (enforce.RecordSlots+1)*enforce.RecordSlot + second,
	}
	if !r.holds {
		r.state, r.holds = enforce.NewState(limit, now), true
	}
	r.state.Advance(limit, 0, now)
	return r
}

func (t *transaction) checkRecordID(check *enforce.BucketCheck, most int64) {
	id := recordIDOf(check)
	check.Repeated = t.remembered[id] > t.now
	check.Exhausted = !check.Repeated && t.idCounter(id, most).state.Level.Micros < enforce.Token
}

func (t *transaction) addID(check *enforce.BucketCheck, most int64) {
	id := recordIDOf(check)
	t.idCounter(id, most).state.Credit(-enforce.Token)
	slot := t.now / enforce.RecordSlot
	t.remembered[id] = (slot + enforce.RecordSlots + 1) * enforce.RecordSlot
	t.added = append(t.added, id)
}

func (t *transaction) readID(values [][]byte) {
	position := binary.BigEndian.Uint64(values[0])
	t.remembered[t.ids[position-1]] = int64(binary.BigEndian.Uint64(values[1]))
}

func idParams(of []recordID) (tenants, ids []byte) {
	tenants, ids = appendArray(nil, oidInt8, len(of)), appendArray(nil, oidBytea, len(of))
	for i := range of {
		tenants, ids = appendInt8(tenants, int64(of[i].tenant)), appendBytes(ids, of[i].id[:])
	}
	return tenants, ids
}

func (t *transaction) addedParams() [][]byte {
	tenants, ids := idParams(t.added)
	until := appendArray(nil, oidInt8, len(t.added))
	for _, id := range t.added {
		until = appendInt8(until, t.remembered[id])
	}
	return [][]byte{tenants, ids, until}
}
