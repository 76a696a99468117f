package rules

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// keyUseInterval is how often uses of API keys are written down.
	keyUseInterval = 15 * time.Second
	// lastKeyUsesPatience is how long the end of a process waits for that.
	lastKeyUsesPatience = time.Second
)

// KeyUse says when an API key was used.
type KeyUse struct {
	KeyID string
	At    time.Time // to the minute
}

// KeyUseStore is where the uses of API keys are written down, for people to see which keys are idle.
type KeyUseStore interface {
	RecordKeyUses(ctx context.Context, uses []KeyUse) error
}

// KeyUses remembers the minute in which each API key was last used, and writes down what is new in
// batches. Noting a use costs about as much as looking the key up, waits for nothing, and loses nothing
// but the minutes that a killed process had not written. It holds one entry for each key that was used.
type KeyUses struct {
	store KeyUseStore
	log   *slog.Logger
	keys  sync.Map // key id to *keyMinute
}

// keyMinute is in minutes since the Unix epoch.
type keyMinute struct {
	used    atomic.Int64
	written int64 // only the one that flushes knows
}

// NewKeyUses returns a KeyUses that has seen no use yet.
func NewKeyUses(store KeyUseStore, log *slog.Logger) *KeyUses {
	return &KeyUses{store: store, log: log}
}

// Note notes a use of a key.
func (u *KeyUses) Note(keyID string, at time.Time) {
	minute := at.Unix() / 60
	held, ok := u.keys.Load(keyID)
	if !ok {
		held, _ = u.keys.LoadOrStore(keyID, new(keyMinute))
	}
	// Of two that note different minutes at once either may win; the next use makes up for it.
	if key := held.(*keyMinute); key.used.Load() < minute {
		key.used.Store(minute)
	}
}

// Run writes uses down until ctx ends, and then those that are left.
func (u *KeyUses) Run(ctx context.Context) {
	ticker := time.NewTicker(keyUseInterval)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastKeyUsesPatience)
			_ = u.Flush(last) // nobody is left to try again
			cancel()
			return
		case <-ticker.C:
		}
		err := u.Flush(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			u.log.WarnContext(ctx, "the last use of API keys cannot be written down; it is kept in memory", "error", err)
		}
		failing = err != nil
	}
}

// Flush writes down the uses that were not written yet. Those that cannot be written stay for the next
// time. Only one Flush may be under way.
func (u *KeyUses) Flush(ctx context.Context) error {
	var uses []KeyUse
	var keys []*keyMinute
	u.keys.Range(func(id, held any) bool {
		key := held.(*keyMinute)
		if minute := key.used.Load(); minute > key.written {
			uses = append(uses, KeyUse{KeyID: id.(string), At: time.Unix(minute*60, 0).UTC()})
			keys = append(keys, key)
		}
		return true
	})
	if len(uses) == 0 {
		return nil
	}
	if err := u.store.RecordKeyUses(ctx, uses); err != nil {
		return err
	}
	for i := range keys {
		keys[i].written = uses[i].At.Unix() / 60
	}
	return nil
}
