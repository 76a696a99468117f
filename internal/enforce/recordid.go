package enforce

import (
	"crypto/sha256"
	"time"
)

// Record ids are forgotten by slot.
const (
	// MaxRecordIDs caps a tenant's remembered record ids; a store may count an id half a minute longer.
	MaxRecordIDs = 1_000_000
	// RecordSlot is in microseconds: an id is forgotten RecordSlots slots after its own, at least two minutes later.
	RecordSlot  = int64(30 * time.Second / time.Microsecond)
	RecordSlots = 4
)

// RecordID is the digest of a caller's id for a record, or zero.
type RecordID [16]byte

// RecordIDOf hashes a caller's id.
func RecordIDOf(id string) RecordID {
	digest := sha256.Sum256([]byte(id))
	return RecordID(digest[:len(RecordID{})])
}

// HasRecordID reports whether the check is a Record to charge once.
func (c *BucketCheck) HasRecordID() bool { return c.Record && !c.Look && c.RecordID != RecordID{} }

// AddsRecordID reports whether a store must remember the RecordID.
func (c *BucketCheck) AddsRecordID() bool { return c.HasRecordID() && c.Allowed && !c.Repeated }
