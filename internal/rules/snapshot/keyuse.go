package snapshot

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	keyUseInterval     = 15 * time.Second
	lastKeyUsesTimeout = time.Second
)

// KeyUse is the last use of an API key.
type KeyUse struct {
	KeyID string
	At    time.Time // to the minute
}

// KeyUseStore stores the uses of API keys, so that people can see which keys are idle.
type KeyUseStore interface {
	RecordKeyUses(ctx context.Context, uses []KeyUse) error
}

// KeyUses writes the minute of each API key's last use, in batches; a killed process loses the unwritten ones.
type KeyUses struct {
	store KeyUseStore
	log   *slog.Logger

	mu      sync.Mutex
	pending map[string]uint32 // unwritten minutes since the Unix epoch, by key id
}

// NewKeyUses returns an empty KeyUses.
func NewKeyUses(store KeyUseStore, log *slog.Logger) *KeyUses {
	return &KeyUses{store: store, log: log, pending: map[string]uint32{}}
}

// Note never blocks; the key remembers the minute, so that further uses in it cost one load from warm memory.
func (u *KeyUses) Note(key *Key, at time.Time) {
	minute := uint32(at.Unix() / 60)
	if atomic.LoadUint32(&key.noted) >= minute {
		return
	}
	// Two concurrent uses in different minutes race; the next use corrects the result.
	atomic.StoreUint32(&key.noted, minute)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keep(key.ID, minute)
}

// keep requires u.mu.
func (u *KeyUses) keep(keyID string, minute uint32) {
	u.pending[keyID] = max(u.pending[keyID], minute)
}

// Run writes uses until ctx ends, and then once more.
func (u *KeyUses) Run(ctx context.Context) {
	ticker := time.NewTicker(keyUseInterval)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastKeyUsesTimeout)
			_ = u.flush(last) // no retry follows
			cancel()
			return
		case <-ticker.C:
		}
		err := u.flush(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			u.log.WarnContext(ctx, "cannot write the last use of API keys; keeping it in memory", "error",
				err)
		}
		failing = err != nil
	}
}

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
