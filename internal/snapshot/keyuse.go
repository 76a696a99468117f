package snapshot

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

// KeyUses writes down the minute in which each API key was last used, in batches. Noting a use never waits. A killed
// process loses only the minutes that it had not written.
type KeyUses struct {
	store KeyUseStore
	log   *slog.Logger

	mu      sync.Mutex
	pending map[string]uint32 // by key id, the minute since the Unix epoch that is not written yet
}

// NewKeyUses returns a KeyUses that has seen no use yet.
func NewKeyUses(store KeyUseStore, log *slog.Logger) *KeyUses {
	return &KeyUses{store: store, log: log, pending: map[string]uint32{}}
}

// Note notes a use of a key of a Snapshot. The key itself remembers the minute, so that all but the first use
// of a minute cost one look at memory that a check has just read.
func (u *KeyUses) Note(key *Key, at time.Time) {
	minute := uint32(at.Unix() / 60)
	if atomic.LoadUint32(&key.noted) >= minute {
		return
	}
	// Of two that note different minutes at once either may win; the next use makes up for it.
	atomic.StoreUint32(&key.noted, minute)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keep(key.ID, minute)
}

// keep remembers a minute to be written; u.mu must be held.
func (u *KeyUses) keep(keyID string, minute uint32) {
	u.pending[keyID] = max(u.pending[keyID], minute)
}

// Run writes uses down until ctx ends, and then once more.
func (u *KeyUses) Run(ctx context.Context) {
	ticker := time.NewTicker(keyUseInterval)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastKeyUsesPatience)
			_ = u.flush(last) // there is no later try
			cancel()
			return
		case <-ticker.C:
		}
		err := u.flush(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			u.log.WarnContext(ctx, "the last use of API keys cannot be written down; it is kept in memory", "error", err)
		}
		failing = err != nil
	}
}

// flush writes down the uses that were not written yet. Those that cannot be written stay for the next
// time.
func (u *KeyUses) flush(ctx context.Context) error {
	u.mu.Lock()
	pending := u.pending
	u.pending = map[string]uint32{}
	u.mu.Unlock()
	if len(pending) == 0 {
		return nil
	}
	uses := make([]KeyUse, 0, len(pending))
	for id, minute := range pending {
		uses = append(uses, KeyUse{KeyID: id, At: time.Unix(int64(minute)*60, 0).UTC()})
	}
	err := u.store.RecordKeyUses(ctx, uses)
	if err != nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		for id, minute := range pending {
			u.keep(id, minute)
		}
	}
	return err
}
