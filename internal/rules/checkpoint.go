package rules

// Checkpoint is a row of the table of checkpoints: a bucket's state, which outlives the bucket's store.
type Checkpoint struct {
	CheckpointPlace
	// Stamp is in microseconds since the Unix epoch; of two rows the later counts.
	Stamp int64
	State []byte // opaque here
	// Owner is the SHA-256 of the id of the user whose bucket it is; nil for one that users share.
	Owner []byte
}

// CheckpointPlace is a checkpoint's key.
type CheckpointPlace struct {
	Tenant  TenantID
	Rule    RuleID // below 0: of a check's own limit; 0: the mark of an erased user
	Subject string // a long one by its digest
}
