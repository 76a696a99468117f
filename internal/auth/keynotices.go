package auth

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// The facts of mail about keys.
const (
	FactTenant = "tenant" // the tenant's name; none for the platform
	FactSlug   = "slug"
	FactKeys   = "keys" // a line for each key
	FactCount  = "count"
)

// KeyNoticeStore queues notices about keys, each once.
type KeyNoticeStore interface {
	// TellOfExpiringKeys queues mail about keys that expire in 14, 7 or 1 days: to the owners of their tenants and to
	// members who created them, at most daily, and about service keys to platform admins.
	TellOfExpiringKeys(ctx context.Context, now time.Time) (messages int, err error)
	// TellOfKeysLeft logs, and mails to owners if asked, the valid keys whose creator has left and that nobody decided
	// to keep.
	TellOfKeysLeft(ctx context.Context, now time.Time, byMail bool) ([]AccessEvent, error)
}

// KeyWatch notifies people of keys that expire soon, and of keys whose creator has left.
type KeyWatch struct {
	store  KeyNoticeStore
	access *AccessLog
	byMail bool
	log    *slog.Logger
}

// NewKeyWatch returns a KeyWatch.
func NewKeyWatch(store KeyNoticeStore, access *AccessLog, byMail bool, log *slog.Logger) *KeyWatch {
	return &KeyWatch{store: store, access: access, byMail: byMail, log: log}
}

// KeysLeft reports keys whose creators have left.
func (w *KeyWatch) KeysLeft(ctx context.Context, now time.Time) error {
	left, err := w.store.TellOfKeysLeft(ctx, now, w.byMail)
	for i := range left {
		w.access.print(ctx, &left[i]) // already stored
	}
	return err
}

// Expiring queues notices of keys that expire soon, if mail is configured.
func (w *KeyWatch) Expiring(ctx context.Context, now time.Time) error {
	if !w.byMail {
		return nil
	}
	messages, err := w.store.TellOfExpiringKeys(ctx, now)
	if messages > 0 {
		w.log.InfoContext(ctx, "queued notices of keys that expire", "messages", messages)
	}
	return err
}

// KeyLeft returns the security log's entry for a valid key whose creator has left.
func KeyLeft(now time.Time, creator AccountID, who, keyID, name string) AccessEvent {
	return AccessEvent{
		ID: newAccessID(), At: now.UTC().Truncate(time.Microsecond), Count: 1, Kind: AccessKeyLeft, Account: creator,
		Who:   tidyUserAgent(who),
		KeyID: keyID, Detail: tidyUserAgent(fmt.Sprintf("made the key %s, which still works", name)),
	}
}
