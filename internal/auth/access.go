package auth

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// AccessKind is something that a person or key did to get in, or was refused.
type AccessKind string

// What the log of access has.
const (
	AccessSignedIn        AccessKind = "signed_in"
	AccessSignInFailed    AccessKind = "sign_in_failed"
	AccessSignInTooSoon   AccessKind = "sign_in_too_soon"
	AccessSignedOut       AccessKind = "signed_out"
	AccessSessionsEnded   AccessKind = "sessions_ended"
	AccessPasswordChanged AccessKind = "password_changed"
	AccessPasswordFailed  AccessKind = "password_failed" // the current one, at a change
	AccessInvited         AccessKind = "invitation_accepted"
	AccessRefused         AccessKind = "refused" // a key or session that is not in force
	AccessDenied          AccessKind = "denied"  // a caller without the permission
	AccessExported        AccessKind = "exported"
)

// AccessEvent is an entry of the log of access. Equal events of one second are one entry.
type AccessEvent struct {
	At    time.Time // the first one's
	Count int64
	Kind  AccessKind
	// Account is 0 for a stranger. What strangers type as an address is not logged, because it may be a password.
	Account AccountID
	Who     string // the account's address or the key's name
	KeyID   string
	Tenant  string // its slug; "" for none
	IP      netip.Addr
	// UserAgent is what the browser says of itself, and Detail the operation of the API.
	UserAgent, Detail string
	RequestID         string // the first one's
}

// The entries of a minute. Whoever has one account, one network or many can only fill a part of the log; what is beyond is
// counted in entries of its kind alone.
const (
	accessOfAccount = 30
	accessOfNetwork = 10  // for strangers
	accessOfAll     = 300 // of strangers together
	accessOfKnown   = 3000
	flushInterval   = time.Second
)

// AccessLog gathers who got in and who did not, and writes a line for each entry to the program's log once a second, so that
// nobody waits for the log and no flood fills it. It is safe for concurrent use.
type AccessLog struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	minute  time.Time
	shares  map[string]int // entries of this minute by account or network
	held    map[accessKey]*AccessEvent
	strange int
	known   int
}

// accessKey is what makes two events of one second equal.
type accessKey struct {
	kind                           AccessKind
	account                        AccountID
	key, tenant, detail, ip, agent string
	isRest                         bool
}

// NewAccessLog returns a log that Run writes.
func NewAccessLog(log *slog.Logger, now func() time.Time) *AccessLog {
	return &AccessLog{log: log, now: now, held: map[accessKey]*AccessEvent{}, shares: map[string]int{}}
}

// Note adds an event. It does not wait.
func (l *AccessLog) Note(event AccessEvent) {
	if l == nil {
		return
	}
	event.At = l.now().UTC()
	event.Count = 1
	event.UserAgent = tidyUserAgent(event.UserAgent)
	event.IP = rules.PlainIP(event.IP)
	l.mu.Lock()
	defer l.mu.Unlock()
	minute := event.At.Truncate(time.Minute)
	if !minute.Equal(l.minute) {
		l.minute, l.strange, l.known = minute, 0, 0
		clear(l.shares)
	}
	key := accessKey{event.Kind, event.Account, event.KeyID, event.Tenant, event.Detail, event.IP.String(), event.UserAgent, false}
	held := l.held[key]
	if held == nil && !l.takePlace(&event) {
		event = AccessEvent{At: event.At, Count: 1, Kind: event.Kind, Detail: "more than are logged one by one"}
		key = accessKey{kind: event.Kind, isRest: true}
		held = l.held[key]
	}
	if held == nil {
		l.held[key] = &event
		return
	}
	held.Count++
}

// takePlace reports whether the event may have an entry of its own.
func (l *AccessLog) takePlace(event *AccessEvent) bool {
	if event.Account == 0 && event.KeyID == "" {
		share := "network " + networkOf(event.IP).String()
		if l.strange >= accessOfAll || l.shares[share] >= accessOfNetwork {
			return false
		}
		l.strange++
		l.shares[share]++
		return true
	}
	share := "account " + strconv.FormatInt(int64(event.Account), 10) + " " + event.KeyID
	if l.known >= accessOfKnown || l.shares[share] >= accessOfAccount {
		return false
	}
	l.known++
	l.shares[share]++
	return true
}

// Run writes what was noted until ctx ends, and once more then.
func (l *AccessLog) Run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.Flush(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			l.Flush(ctx)
		}
	}
}

// Flush writes what was noted.
func (l *AccessLog) Flush(ctx context.Context) {
	l.mu.Lock()
	events := make([]AccessEvent, 0, len(l.held))
	for _, event := range l.held {
		events = append(events, *event)
	}
	l.held = map[accessKey]*AccessEvent{}
	l.mu.Unlock()
	for i := range events {
		e := &events[i]
		l.log.InfoContext(ctx, "access", "event", string(e.Kind), "count", e.Count, "account_id", int64(e.Account), "who", e.Who,
			"key_id", e.KeyID, "tenant", e.Tenant, "ip", e.IP.String(), "user_agent", e.UserAgent, "detail", e.Detail,
			"at", e.At, "request_id", e.RequestID)
	}
}
