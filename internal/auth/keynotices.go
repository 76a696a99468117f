package auth

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
)

// The facts of mail about keys.
const (
	FactTenant = "tenant" // the tenant's name; none for the platform
	FactSlug   = "slug"
	FactKeys   = "keys" // a line for each key
	FactCount  = "count"
)

// KeyNoticeStore tells people about keys, each once.
type KeyNoticeStore interface {
	// TellOfExpiringKeys queues mail about keys that expire in 14, 7 or 1 days: to the owners of their tenants and to members
	// who made them, once a day at most, and about service keys to platform admins. It returns the number of messages.
	TellOfExpiringKeys(ctx context.Context, now time.Time) (messages int, err error)
	// TellOfKeysLeft finds keys in force whose creator has left and that nobody decided to keep. It writes each to the
	// security log, and queues mail to the owners if asked. It returns the entries.
	TellOfKeysLeft(ctx context.Context, now time.Time, byMail bool) ([]AccessEvent, error)
}

// KeyWatch tells people of keys that are about to fail, and of keys that outlive the person who made them.
type KeyWatch struct {
	store  KeyNoticeStore
	access *AccessLog
	byMail bool
	log    *slog.Logger

	telling jobs.Outage
}

const (
	// keysLeftEvery is how soon owners learn of a leaver's keys, however that person left: a member was removed, an account
	// disabled, or a group's role taken back.
	keysLeftEvery = time.Minute
	// expiringEvery is how often the first minute of a day is looked for.
	expiringEvery = 10 * time.Minute
)

// NewKeyWatch returns a KeyWatch. Without mail nobody is told of keys that expire; the UI shows them.
func NewKeyWatch(store KeyNoticeStore, access *AccessLog, byMail bool, log *slog.Logger) *KeyWatch {
	return &KeyWatch{
		store: store, access: access, byMail: byMail, log: log,
		telling: jobs.Outage{Failing: "nobody is told about keys", Recovered: "people are told about keys again"},
	}
}

// Run tells people until ctx ends. Any number of processes may do so.
func (w *KeyWatch) Run(ctx context.Context) {
	tick := time.NewTicker(keysLeftEvery)
	defer tick.Stop()
	for looked := (time.Time{}); ; {
		now := time.Now()
		err := w.KeysLeft(ctx, now)
		if err == nil && w.byMail && now.Sub(looked) >= expiringEvery {
			if err = w.Expiring(ctx, now); err == nil {
				looked = now
			}
		}
		w.telling.Note(ctx, w.log, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// KeysLeft tells of keys whose creators have left.
func (w *KeyWatch) KeysLeft(ctx context.Context, now time.Time) error {
	left, err := w.store.TellOfKeysLeft(ctx, now, w.byMail)
	for i := range left {
		w.access.print(ctx, &left[i]) // the store has written it
	}
	return err
}

// Expiring tells of keys that expire soon.
func (w *KeyWatch) Expiring(ctx context.Context, now time.Time) error {
	messages, err := w.store.TellOfExpiringKeys(ctx, now)
	if messages > 0 {
		w.log.InfoContext(ctx, "reminded of keys that expire", "messages", messages)
	}
	return err
}

// KeyLeft is the entry of the security log for a key in force whose creator has left.
func KeyLeft(now time.Time, creator AccountID, who, keyID, name string) AccessEvent {
	return AccessEvent{
		ID: newAccessID(), At: now.UTC().Truncate(time.Microsecond), Count: 1, Kind: AccessKeyLeft, Account: creator, Who: tidyUserAgent(who),
		KeyID: keyID, Detail: tidyUserAgent(fmt.Sprintf("made the key %s, which still works", name)),
	}
}
