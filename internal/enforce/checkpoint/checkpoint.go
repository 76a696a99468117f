// Package checkpoint writes the states of buckets of long limits to the database, so that they survive their store.
//
// The process's own buckets learn the newest states from the shared store's answers. A bucket that moved by 2 % of its
// limit is written within a second, and tenants take turns. A state known later stays, whichever process wrote it.
package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const (
	writeEvery = time.Second
	atOnce     = 1000
)

// Memory has the buckets that have moved.
type Memory interface {
	Moved(most int) []enforce.Checkpoint
	Wrote(checkpoints []enforce.Checkpoint, written bool)
	Restore(enforce.Checkpoint)
}

// Table keeps checkpoints.
type Table interface {
	// WriteCheckpoints writes all rows or none, within a few seconds. Rows older than the table's, of removed tenants,
	// or from before their user's erasure are left out.
	WriteCheckpoints(ctx context.Context, rows []rules.Checkpoint) error
	CheckpointsAfter(ctx context.Context, after rules.CheckpointPlace, limit int) ([]rules.Checkpoint, error)
	DropCheckpoints(ctx context.Context, rows []rules.Checkpoint) (int64, error)
}

// Writer writes checkpoints.
type Writer struct {
	memory   Memory
	table    Table
	snapshot func() *snapshot.Snapshot
	log      *slog.Logger
	written  atomic.Int64
}

// NewWriter returns a Writer; call Run.
func NewWriter(memory Memory, table Table, snapshot func() *snapshot.Snapshot, log *slog.Logger) *Writer {
	return &Writer{memory: memory, table: table, snapshot: snapshot, log: log}
}

// Written counts the written checkpoints.
func (w *Writer) Written() int64 { return w.written.Load() }

// Run writes each second until ctx ends, and once more.
func (w *Writer) Run(ctx context.Context) {
	isFailing := false
	for pause := writeEvery; ; {
		select {
		case <-ctx.Done():
			if _, err := w.Write(context.WithoutCancel(ctx)); err != nil {
				w.log.WarnContext(ctx, "the last checkpoints of long limits were not written", "error", err)
			}
			return
		case <-time.After(pause):
		}
		start := time.Now()
		more, err := w.write(ctx)
		if pause = writeEvery; more {
			pause = min(pause, time.Since(start))
		}
		switch {
		case err != nil && !isFailing && ctx.Err() == nil:
			w.log.WarnContext(ctx, "checkpoints of long limits cannot be written; retrying", "error", err)
		case err == nil && isFailing:
			w.log.InfoContext(ctx, "checkpoints of long limits are written again")
		}
		isFailing = err != nil
	}
}

// Write writes all moved buckets, and returns how many rows.
func (w *Writer) Write(ctx context.Context) (rows int64, err error) {
	before := w.Written()
	for more := true; more && err == nil; {
		more, err = w.write(ctx)
	}
	return w.Written() - before, err
}

func (w *Writer) write(ctx context.Context) (more bool, err error) {
	checkpoints := w.memory.Moved(atOnce)
	if len(checkpoints) == 0 {
		return false, nil
	}
	written := false
	defer func() { w.memory.Wrote(checkpoints, written) }() // also after a panic
	rows := make([]rules.Checkpoint, 0, len(checkpoints))
	latest := w.snapshot()
	for i := range checkpoints {
		c := &checkpoints[i]
		owner, isKnown := ownerOf(latest, c.Key)
		if !isKnown { // its rule was removed, so nobody asks for it, and its owner could not be erased
			continue
		}
		rows = append(rows, rules.Checkpoint{
			CheckpointPlace: placeOf(c.Key), Stamp: c.Stamp, State: c.State.Append(nil), Owner: owner,
		})
	}
	if err := w.table.WriteCheckpoints(ctx, rows); err != nil {
		return false, err
	}
	written = true
	w.written.Add(int64(len(rows)))
	return len(checkpoints) == atOnce, nil
}

// WriteCredited writes a bucket after a credit or reset.
func (w *Writer) WriteCredited(ctx context.Context, key enforce.Key, after enforce.Bucket) error {
	key = key.Bounded()
	owner, isKnown := ownerOf(w.snapshot(), key)
	if !isKnown {
		return nil
	}
	state := enforce.State{Bucket: after}
	return w.table.WriteCheckpoints(ctx, []rules.Checkpoint{{
		CheckpointPlace: placeOf(key), Stamp: after.Stamp, State: state.Append(nil), Owner: owner,
	}})
}

func placeOf(key enforce.Key) rules.CheckpointPlace {
	return rules.CheckpointPlace{Tenant: key.Tenant, Rule: key.Rule, Subject: key.Subject}
}

func ownerOf(latest *snapshot.Snapshot, key enforce.Key) (owner []byte, isKnown bool) {
	if latest == nil {
		return nil, false
	}
	tenant := latest.Tenant(key.Tenant)
	if tenant == nil {
		return nil, false
	}
	if key.Rule < 0 {
		key.Rule = -key.Rule
		_, key.Subject, _ = rules.CutOwnSubject(key.Subject) // empty for a digest, which does not tell the user
	}
	user, isKnown := tenant.OwnerOfBucket(key.Rule, key.Subject)
	if user == "" {
		return nil, isKnown
	}
	if digits, isLong := strings.CutPrefix(user, "#"); isLong { // the subject is the digest of a long id
		if digest, err := hex.DecodeString(digits); err == nil && len(digest) == sha256.Size {
			return digest, true
		}
	}
	digest := sha256.Sum256([]byte(user))
	return digest[:], true
}

// Load restores all checkpoints, for a process that alone has the buckets in memory, and returns how many.
func Load(ctx context.Context, table Table, memory Memory) (loaded int, err error) {
	err = walk(ctx, table, func(rows []rules.Checkpoint) error {
		for i := range rows {
			if c, ok := checkpointOf(&rows[i]); ok {
				memory.Restore(c)
				loaded++
			}
		}
		return nil
	})
	return loaded, err
}

func checkpointOf(row *rules.Checkpoint) (c enforce.Checkpoint, ok bool) {
	c.Key, c.Stamp = enforce.Key{Tenant: row.Tenant, Rule: row.Rule, Subject: row.Subject}, row.Stamp
	c.State, _, ok = enforce.ParseState(row.State)
	return c, ok && row.Rule != 0
}

// marksKept: the mark of an erased user stays until the user's last reservation is settled.
const marksKept = enforce.MaxReserveFor + time.Hour

// Tidy deletes checkpoints older than twice the rule's slowest refill: the second one covers a debt.
func Tidy(ctx context.Context, table Table, latest *snapshot.Snapshot, now time.Time) (deleted int64, err error) {
	err = walk(ctx, table, func(rows []rules.Checkpoint) error {
		var full []rules.Checkpoint
		for i := range rows {
			if now.UnixMicro()-rows[i].Stamp > keptFor(latest, &rows[i], now).Microseconds() {
				full = append(full, rows[i])
			}
		}
		if len(full) == 0 {
			return nil
		}
		n, err := table.DropCheckpoints(ctx, full)
		deleted += n
		return err
	})
	return deleted, err
}

func keptFor(latest *snapshot.Snapshot, row *rules.Checkpoint, now time.Time) time.Duration {
	if row.Rule == 0 {
		return marksKept
	}
	slowest := time.Duration(0)
	if state, unknown, ok := enforce.ParseState(row.State); ok {
		slowest = state.Limit.TimeToFull()
	} else if unknown {
		slowest = rules.MaxTimeToFull
	}
	if tenant := latest.Tenant(row.Tenant); tenant != nil && row.Rule > 0 {
		slowest = max(slowest, tenant.SlowestRefill(row.Rule, row.Subject, now))
	}
	return 2 * slowest
}

func walk(ctx context.Context, table Table, do func([]rules.Checkpoint) error) error {
	for after := (rules.CheckpointPlace{}); ; {
		rows, err := table.CheckpointsAfter(ctx, after, atOnce)
		if err == nil && len(rows) > 0 {
			err = do(rows)
		}
		if err != nil || len(rows) < atOnce {
			return err
		}
		after = rows[len(rows)-1].CheckpointPlace
	}
}
