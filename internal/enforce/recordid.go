package enforce

import (
	"crypto/sha256"
	"time"
)

// The bounds of ids of records.
const (
	// MaxRecordIDs caps the record ids of a tenant that a store remembers. A store may count an id for half a minute
	// longer than it remembers the id.
	MaxRecordIDs = 1_000_000
	// RecordSlot is the step in which record ids are forgotten, in microseconds. An id that came in one slot is
	// forgotten when RecordSlots slots after it are over, at least two minutes later.
	RecordSlot  = int64(30 * time.Second / time.Microsecond)
	RecordSlots = 4
)

// RecordID is the digest of the id that a caller gave to a record; the zero value is none.
type RecordID [16]byte

// RecordIDOf returns the digest of a caller's id.
func RecordIDOf(id string) RecordID {
	digest := sha256.Sum256([]byte(id))
	return RecordID(digest[:len(RecordID{})])
}

// HasRecordID reports whether the check is a Record that is charged once by its RecordID.
func (c *BucketCheck) HasRecordID() bool { return c.Record && !c.Look && c.RecordID != RecordID{} }

// AddsRecordID reports whether a store must remember the RecordID of an answered check.
func (c *BucketCheck) AddsRecordID() bool { return c.HasRecordID() && c.Allowed && !c.Repeated }
