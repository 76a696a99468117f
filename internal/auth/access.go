package auth

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// AccessKind is something that a person or key did to get in, or was refused.
type AccessKind string

// What the security log has.
const (
	AccessSignedIn        AccessKind = "signed_in"
	AccessSignInFailed    AccessKind = "sign_in_failed"
	AccessSignInTooSoon   AccessKind = "sign_in_too_soon"
	AccessSignedOut       AccessKind = "signed_out"
	AccessSessionsEnded   AccessKind = "sessions_ended"
	AccessPasswordChanged AccessKind = "password_changed"
	AccessPasswordFailed  AccessKind = "password_failed" // the current one, at a change
	AccessResetAsked      AccessKind = "reset_asked"
	AccessPasswordReset   AccessKind = "password_reset"
	AccessConfirmed       AccessKind = "identity_confirmed" // signed in again, before a dangerous operation
	AccessFactorFailed    AccessKind = "second_factor_failed"
	AccessFactorOn        AccessKind = "second_factor_on"
	AccessFactorOff       AccessKind = "second_factor_off"
	AccessRecoveryCodes   AccessKind = "recovery_codes_replaced"
	AccessLinked          AccessKind = "identity_linked"
	AccessUnlinked        AccessKind = "identity_unlinked"
	AccessInvited         AccessKind = "invitation_accepted"
	AccessRefused         AccessKind = "refused"         // a key or session that is not in force
	AccessDenied          AccessKind = "denied"          // a caller without the permission
	AccessOutside         AccessKind = "outside_network" // a key from a network where it may not be used
	AccessExported        AccessKind = "exported"
	AccessKeyLeft         AccessKind = "key_left_behind" // a key in force, whose creator has left
)

// isAttempt reports whether an event of the kind changed nothing and handed nothing out. Attackers can repeat those, so
// equal ones of a second are one entry, which is written within seconds. Other events are written before their answer.
func (k AccessKind) isAttempt() bool {
	switch k {
	case AccessSignInFailed, AccessSignInTooSoon, AccessPasswordFailed, AccessFactorFailed, AccessResetAsked, AccessRefused, AccessDenied, AccessOutside:
		return true
	}
	return false
}

// AccessEvent is an entry of the security log.
type AccessEvent struct {
	ID    int64     // random, so that an entry that is written twice is stored once
	At    time.Time // the first one's
	Count int64     // equal events that this entry stands for
	Kind  AccessKind
	// Account is 0 for a stranger.
	Account AccountID
	Who     string // the account's address or the key's name
	// Typed is what a stranger typed as the address, if it has the form of one: anything else may be a password.
	Typed    string
	KeyID    string
	TenantID rules.TenantID // 0 for none
	Tenant   string         // its slug; "" for none
	IP       netip.Addr
	// UserAgent is what the browser says of itself, and Detail the operation of the API.
	UserAgent, Detail string
	RequestID         string // the first one's
}

// AccessFilter selects entries; zero fields select all.
type AccessFilter struct {
	Account AccountID
	Typed   string // an address, compared without case: with an account, also entries of strangers who typed it
	Email   string // an account's address, also where a stranger typed it
	Kind    AccessKind
	IP      netip.Addr
	// Tenant is a slug.
	Tenant      string
	From, Until time.Time
}

// AccessPlace is a place in the log; the zero value is before the latest entry.
type AccessPlace struct {
	At time.Time
	ID int64
}

// Place is the entry's own.
func (e *AccessEvent) Place() AccessPlace { return AccessPlace{e.At, e.ID} }

// AccessStore keeps the security log.
type AccessStore interface {
	// WriteAccess adds entries; those that it has already are left alone.
	WriteAccess(ctx context.Context, events []AccessEvent) error
	// AccessEvents returns up to limit entries before a place, the latest first. With an account and a typed address it
	// returns the entries of either.
	AccessEvents(ctx context.Context, filter AccessFilter, before AccessPlace, limit int) ([]AccessEvent, error)
	// AccessEventsOf is AccessEvents for what happened in one tenant.
	AccessEventsOf(ctx context.Context, tenant rules.TenantID, filter AccessFilter, before AccessPlace, limit int) ([]AccessEvent, error)
}

// The entries of this process in a minute and in a day. Whoever has one account, one network or many can only fill a part of
// the log. Further events are counted, in one entry a minute for each kind and, up to maxRests, each account or key.
const (
	accessOfAccount = 30
	accessOfNetwork = 10  // for strangers
	accessOfAll     = 300 // of strangers together
	accessOfKnown   = 3000

	accessOfAccountDaily = 2000
	accessOfAllDaily     = 10_000
	accessOfKnownDaily   = 100_000
	maxRests             = 50

	flushInterval = time.Second
	// maxUnwritten caps the entries that wait for the database.
	maxUnwritten = 10_000
	// writePatience is how long an answer waits for its entry. After that the entry waits in memory.
	writePatience = 2 * time.Second
)

// AccessLog is the security log: who got in and who did not. It writes each entry to the program's log and to the store.
// It is safe for concurrent use.
//
// The store has an entry before its request is answered, except for attempts (see isAttempt), which follow within a few
// seconds. While the database is away entries wait in memory, and the program's log has them.
type AccessLog struct {
	log   *slog.Logger
	store AccessStore // nil: the program's log only
	now   func() time.Time
	// atOnce writes an entry whether or not its request goes on, so it takes no context.
	atOnce func(event *AccessEvent)

	mu        sync.Mutex
	minute    accessShares
	day       accessShares
	held      map[accessKey]*AccessEvent // attempts of this second
	rests     map[accessKey]*AccessEvent // beyond the shares, of this minute
	unwritten []AccessEvent              // for the store

	writing sync.Mutex
	isAway  bool
}

// accessShares counts the entries of a span by account or network, of strangers, and of all others.
type accessShares struct {
	begins  time.Time
	of      map[string]int
	strange int
	known   int
}

// accessKey is what makes two events of one second equal.
type accessKey struct {
	kind                                  AccessKind
	account                               AccountID
	key, tenant, typed, detail, ip, agent string
}

// NewAccessLog returns a log that Run writes. Without a store it writes to the program's log only.
func NewAccessLog(store AccessStore, log *slog.Logger, now func() time.Time) *AccessLog {
	l := &AccessLog{
		log: log, store: store, now: now, held: map[accessKey]*AccessEvent{}, rests: map[accessKey]*AccessEvent{},
	}
	l.atOnce = func(event *AccessEvent) {
		ctx, cancel := context.WithTimeout(context.Background(), writePatience)
		defer cancel()
		l.print(ctx, event)
		if store != nil && store.WriteAccess(ctx, []AccessEvent{*event}) != nil {
			l.keep([]AccessEvent{*event})
		}
	}
	return l
}

// Note adds an event. It waits for the store at most for writePatience, and for an attempt not at all.
func (l *AccessLog) Note(event AccessEvent) {
	if l == nil {
		return
	}
	event.At = l.now().UTC().Truncate(time.Microsecond) // as the store keeps it
	event.Count = 1
	event.ID = newAccessID()
	event.UserAgent, event.Who, event.Detail = tidyUserAgent(event.UserAgent), tidyUserAgent(event.Who), tidyUserAgent(event.Detail)
	event.IP = rules.PlainIP(event.IP)
	if !isAddress(event.Typed) {
		event.Typed = ""
	}
	if !l.add(&event) {
		l.atOnce(&event)
	}
}

// add holds an event for a later write, and reports false for one that is to be written now.
func (l *AccessLog) add(event *AccessEvent) (isHeld bool) {
	key := accessKey{event.Kind, event.Account, event.KeyID, event.Tenant, event.Typed, event.Detail, event.IP.String(), event.UserAgent}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.held[key]; held != nil {
		held.Count++
		return true
	}
	if l.takePlace(event) {
		if event.Kind.isAttempt() {
			l.held[key] = event
		}
		return event.Kind.isAttempt()
	}
	rest := AccessEvent{ID: event.ID, At: event.At, Kind: event.Kind, Account: event.Account, Who: event.Who, KeyID: event.KeyID}
	key = accessKey{kind: event.Kind, account: event.Account, key: event.KeyID}
	if len(l.rests) >= maxRests && l.rests[key] == nil {
		rest.Account, rest.Who, rest.KeyID = 0, "", ""
		key = accessKey{kind: event.Kind}
	}
	if l.rests[key] == nil {
		rest.Detail = "more than are logged one by one"
		l.rests[key] = &rest
	}
	l.rests[key].Count++
	return true
}

// takePlace reports whether the event may have an entry of its own.
func (l *AccessLog) takePlace(event *AccessEvent) bool {
	l.minute.enter(event.At.Truncate(time.Minute))
	l.day.enter(event.At.Truncate(24 * time.Hour))
	if event.Account == 0 && event.KeyID == "" {
		share := "network " + networkOf(event.IP).String()
		if l.minute.strange >= accessOfAll || l.day.strange >= accessOfAllDaily || l.minute.of[share] >= accessOfNetwork {
			return false
		}
		l.minute.strange++
		l.day.strange++
		l.minute.of[share]++
		return true
	}
	share := "account " + strconv.FormatInt(int64(event.Account), 10) + " " + event.KeyID
	if l.minute.known >= accessOfKnown || l.day.known >= accessOfKnownDaily ||
		l.minute.of[share] >= accessOfAccount || l.day.of[share] >= accessOfAccountDaily {
		return false
	}
	l.minute.known++
	l.day.known++
	l.minute.of[share]++
	l.day.of[share]++
	return true
}

func (s *accessShares) enter(begins time.Time) {
	if !begins.Equal(s.begins) || s.of == nil {
		*s = accessShares{begins: begins, of: map[string]int{}}
	}
}

// Run writes what was noted until ctx ends, and once more then.
func (l *AccessLog) Run(ctx context.Context) {
	tick := time.NewTicker(flushInterval)
	defer tick.Stop()
	for minute := l.now().Truncate(time.Minute); ; {
		select {
		case <-ctx.Done():
			l.Flush(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			now := l.now().Truncate(time.Minute)
			l.flush(ctx, !now.Equal(minute))
			minute = now
		}
	}
}

// Flush writes all that was noted.
func (l *AccessLog) Flush(ctx context.Context) { l.flush(ctx, true) }

// flush writes the attempts of this second and, if asked, the counts of those without an entry.
func (l *AccessLog) flush(ctx context.Context, withRests bool) {
	l.mu.Lock()
	var events []AccessEvent
	for _, event := range l.held {
		events = append(events, *event)
	}
	clear(l.held)
	if withRests {
		for _, event := range l.rests {
			events = append(events, *event)
		}
		clear(l.rests)
	}
	l.mu.Unlock()
	for i := range events {
		l.print(ctx, &events[i])
	}
	if l.store != nil {
		l.keep(events)
		l.write(ctx)
	}
}

// keep remembers entries until the store has them. Beyond maxUnwritten the oldest are left to the program's log.
func (l *AccessLog) keep(events []AccessEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwritten = append(l.unwritten, events...)
	if over := len(l.unwritten) - maxUnwritten; over > 0 {
		l.unwritten = append([]AccessEvent(nil), l.unwritten[over:]...)
	}
}

// write stores what was kept.
func (l *AccessLog) write(ctx context.Context) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	events := l.unwritten
	l.unwritten = nil
	l.mu.Unlock()
	if len(events) == 0 {
		return
	}
	err := l.store.WriteAccess(ctx, events)
	if err != nil && !isOutage(ctx, err) {
		l.writeEach(ctx, events)
		err = nil
	}
	if err != nil {
		l.keep(events)
	}
	if isAway := err != nil; isAway != l.isAway && ctx.Err() == nil {
		l.isAway = isAway
		if isAway {
			l.log.ErrorContext(ctx, "the security log is not stored; its entries wait in memory", "error", err)
		} else {
			l.log.InfoContext(ctx, "the security log is stored again")
		}
	}
}

// writeEach writes entry by entry what the store refused as a batch, so that one entry does not keep others out. An entry
// that is refused by itself is left to the program's log.
func (l *AccessLog) writeEach(ctx context.Context, events []AccessEvent) {
	for i := range events {
		switch err := l.store.WriteAccess(ctx, events[i:i+1]); {
		case err == nil:
		case isOutage(ctx, err):
			l.keep(events[i : i+1])
		default:
			l.log.ErrorContext(ctx, "an entry of the security log was not stored", "event", string(events[i].Kind), "error", err)
		}
	}
}

func isOutage(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, rules.ErrAway) || errors.Is(err, context.DeadlineExceeded)
}

// print writes an entry to the program's log. It leaves out what was typed, because logs are read by more people and kept
// elsewhere.
func (l *AccessLog) print(ctx context.Context, e *AccessEvent) {
	l.log.InfoContext(ctx, "access", "event", string(e.Kind), "count", e.Count, "account_id", int64(e.Account), "who", e.Who,
		"key_id", e.KeyID, "tenant", e.Tenant, "ip", e.IP.String(), "user_agent", e.UserAgent, "detail", e.Detail,
		"at", e.At, "request_id", e.RequestID)
}

// newAccessID makes up the id of an entry: positive, and within what JavaScript's numbers hold.
func newAccessID() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails; see its documentation
	return int64(binary.BigEndian.Uint64(random[:])>>11) + 1
}

// Succeeded reports whether an event of the kind is no refusal.
func (k AccessKind) Succeeded() bool { return !k.isAttempt() || k == AccessResetAsked }
