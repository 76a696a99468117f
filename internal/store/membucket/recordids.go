package membucket

import (
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// recordIDs are a tenant's, by enforce.RecordSlot: a slot is forgotten at once, because a million single ids would keep
// callers waiting.
type recordIDs map[int64]map[enforce.RecordID]struct{}

func (r recordIDs) add(id enforce.RecordID, now int64) {
	slot := now / enforce.RecordSlot
	if r[slot] == nil {
		r[slot] = map[enforce.RecordID]struct{}{}
	}
	r[slot][id] = struct{}{}
}

func (s *Store) checkRecordID(check *enforce.BucketCheck, tenant rules.TenantID, now int64) {
	for other := range s.recordIDs { // any tenant: one that records no more must also be cleaned
		s.forgetRecords(other, now)
		break
	}
	s.forgetRecords(tenant, now)
	held := s.recordIDs[tenant]
	if held == nil {
		held = recordIDs{}
		s.recordIDs[tenant] = held
	}
	count := 0
	for _, ids := range held {
		_, found := ids[check.RecordID]
		check.Repeated = check.Repeated || found
		count += len(ids)
	}
	check.Exhausted = !check.Repeated && count >= s.maxRecordIDs
}

func (s *Store) forgetRecords(tenant rules.TenantID, now int64) {
	held := s.recordIDs[tenant]
	for slot := range held {
		if slot < now/enforce.RecordSlot-enforce.RecordSlots {
			delete(held, slot)
		}
	}
	if len(held) == 0 {
		delete(s.recordIDs, tenant)
	}
}
