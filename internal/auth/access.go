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

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// AccessKind is the kind of an entry in the security log.
type AccessKind string

// The kinds.
const (
	AccessSignedIn        AccessKind = "signed_in"
	AccessSignInFailed    AccessKind = "sign_in_failed"
	AccessSignInTooSoon   AccessKind = "sign_in_too_soon"
	AccessSignedOut       AccessKind = "signed_out"
	AccessSessionsEnded   AccessKind = "sessions_ended"
	AccessPasswordChanged AccessKind = "password_changed"
	AccessPasswordFailed  AccessKind = "password_failed" // at a password change
	AccessResetAsked      AccessKind = "reset_asked"
	AccessPasswordReset   AccessKind = "password_reset"
	AccessConfirmed       AccessKind = "identity_confirmed"
	AccessFactorFailed    AccessKind = "second_factor_failed"
	AccessFactorOn        AccessKind = "second_factor_on"
	AccessFactorOff       AccessKind = "second_factor_off"
	AccessRecoveryCodes   AccessKind = "recovery_codes_replaced"
	AccessLinked          AccessKind = "identity_linked"
	AccessUnlinked        AccessKind = "identity_unlinked"
	AccessInvited         AccessKind = "invitation_accepted"
	AccessRefused         AccessKind = "refused" // an invalid key or session
	AccessDenied          AccessKind = "denied"  // missing permission
	AccessOutside         AccessKind = "outside_network"
	AccessExported        AccessKind = "exported"
	AccessKeyLeft         AccessKind = "key_left_behind"
)

// isAttempt reports whether an event changed nothing and returned no data. Equal attempts within a second share an
// entry, because attackers can repeat them.
func (k AccessKind) isAttempt() bool {
	switch k {
	case AccessSignInFailed, AccessSignInTooSoon, AccessPasswordFailed, AccessFactorFailed, AccessResetAsked,
		AccessRefused, AccessDenied, AccessOutside:
		return true
	}
	return false
}

// AccessEvent is an entry of the security log.
type AccessEvent struct {
	ID                int64 // random, so that a repeated write stores an entry once
	At                time.Time
	Count             int64 // of equal events
	Kind              AccessKind
	Account           AccountID
	Who               string // account's address or key's name
	Typed             string // by an anonymous caller; other texts than addresses may be passwords, and are dropped
	KeyID             string
	TenantID          rules.TenantID // 0 for none
	Tenant            string         // its slug; "" for none
	IP                netip.Addr
	UserAgent, Detail string
	RequestID         string
}

// AccessFilter selects entries; zero fields select all.
type AccessFilter struct {
	Account     AccountID
	Typed       string // with Account: entries of either
	Email       string // an account's address, also where an anonymous caller typed it
	Kind        AccessKind
	IP          netip.Addr
	Tenant      string
	From, Until time.Time
}

// Cursor returns the entry's cursor.
func (e *AccessEvent) Cursor() LogCursor { return LogCursor{e.At, e.ID} }

// AccessStore keeps the security log.
type AccessStore interface {
	WriteAccess(ctx context.Context, events []AccessEvent) error
	// AccessEvents returns entries of a tenant (0: all) before a cursor, latest first. A tenant's ignore Typed, Email
	// and Tenant.
	AccessEvents(ctx context.Context, tenant rules.TenantID, filter AccessFilter, before LogCursor,
		limit int) ([]AccessEvent, error)
}

// Limits for separate entries of this process, so that nobody can fill the log. Further events are only counted, in one
// entry a minute for each kind and, up to maxOverflow, each account or key.
const (
	accessOfAccount = 30
	accessOfNetwork = 10  // anonymous callers
	accessOfAll     = 300 // all anonymous callers
	accessOfKnown   = 3000

	accessOfAccountDaily = 2000
	accessOfAllDaily     = 10_000
	accessOfKnownDaily   = 100_000
	maxOverflow          = 50

	flushInterval = time.Second
	maxUnwritten  = 10_000
	writeTimeout  = 2 * time.Second // of an answer for its entry, which then waits in memory
)

// AccessLog writes events to the program's log and to the store; they wait in memory while the database is away.
type AccessLog struct {
	log      *slog.Logger
	store    AccessStore
	now      func() time.Time
	writeNow func(event *AccessEvent) // even if the request is canceled

	mu        sync.Mutex
	minute    accessShares
	day       accessShares
	held      map[accessKey]*AccessEvent
	overflow  map[accessKey]*AccessEvent // beyond the limits
	unwritten []AccessEvent

	writing sync.Mutex
	outage  jobs.Outage
}

type accessShares struct {
	begins  time.Time
	of      map[string]int
	strange int
	known   int
}

type accessKey struct {
	kind                                  AccessKind
	account                               AccountID
	key, tenant, typed, detail, ip, agent string
}

// NewAccessLog returns a log, which Run writes; without a store, to the program's log only.
func NewAccessLog(store AccessStore, log *slog.Logger, now func() time.Time) *AccessLog {
	l := &AccessLog{
		log: log, store: store, now: now, held: map[accessKey]*AccessEvent{}, overflow: map[accessKey]*AccessEvent{},
		outage: jobs.Outage{
			Failing:   "the security log is not stored; its entries wait in memory",
			Recovered: "the security log is stored again",
		},
	}
	l.writeNow = func(event *AccessEvent) {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		defer cancel()
		l.print(ctx, event)
		if store != nil && store.WriteAccess(ctx, []AccessEvent{*event}) != nil {
			l.keep([]AccessEvent{*event})
		}
	}
	return l
}

// Note adds an event, and blocks for at most writeTimeout, for an attempt not at all.
func (l *AccessLog) Note(event AccessEvent) {
	if l == nil {
		return
	}
	event.At = l.now().UTC().Truncate(time.Microsecond) // the store's precision
	event.Count = 1
	event.ID = newAccessID()
	event.UserAgent, event.Who, event.Detail = tidyUserAgent(event.UserAgent), tidyUserAgent(event.Who),
		tidyUserAgent(event.Detail)
	event.IP = rules.PlainIP(event.IP)
	if !isAddress(event.Typed) {
		event.Typed = ""
	}
	if !l.add(&event) {
		l.writeNow(&event)
	}
}

func (l *AccessLog) add(event *AccessEvent) (isHeld bool) {
	key := accessKey{
		event.Kind, event.Account, event.KeyID, event.Tenant, event.Typed, event.Detail, event.IP.String(),
		event.UserAgent,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.held[key]; held != nil {
		held.Count++
		return true
	}
	if l.takeShare(event) {
		if event.Kind.isAttempt() {
			l.held[key] = event
		}
		return event.Kind.isAttempt()
	}
	rest := AccessEvent{
		ID: event.ID, At: event.At, Kind: event.Kind, Account: event.Account, Who: event.Who,
		KeyID: event.KeyID,
	}
	key = accessKey{kind: event.Kind, account: event.Account, key: event.KeyID}
	if len(l.overflow) >= maxOverflow && l.overflow[key] == nil {
		rest.Account, rest.Who, rest.KeyID = 0, "", ""
		key = accessKey{kind: event.Kind}
	}
	if l.overflow[key] == nil {
		rest.Detail = "more than are logged separately"
		l.overflow[key] = &rest
	}
	l.overflow[key].Count++
	return true
}

func (l *AccessLog) takeShare(event *AccessEvent) bool {
	l.minute.enter(event.At.Truncate(time.Minute))
	l.day.enter(event.At.Truncate(24 * time.Hour))
	if event.Account == 0 && event.KeyID == "" {
		share := "network " + networkOf(event.IP).String()
		if l.minute.strange >= accessOfAll || l.day.strange >= accessOfAllDaily ||
			l.minute.of[share] >= accessOfNetwork {
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

// Run writes entries until ctx ends, and then once more.
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

// Flush writes all waiting entries.
func (l *AccessLog) Flush(ctx context.Context) { l.flush(ctx, true) }

func (l *AccessLog) flush(ctx context.Context, withOverflow bool) {
	l.mu.Lock()
	var events []AccessEvent
	for _, event := range l.held {
		events = append(events, *event)
	}
	clear(l.held)
	if withOverflow {
		for _, event := range l.overflow {
			events = append(events, *event)
		}
		clear(l.overflow)
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

func (l *AccessLog) keep(events []AccessEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwritten = append(l.unwritten, events...)
	if over := len(l.unwritten) - maxUnwritten; over > 0 {
		l.unwritten = append([]AccessEvent(nil), l.unwritten[over:]...)
	}
}

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
	l.outage.Note(ctx, l.log, err)
}

// writeEach keeps a bad entry from blocking others.
func (l *AccessLog) writeEach(ctx context.Context, events []AccessEvent) {
	for i := range events {
		switch err := l.store.WriteAccess(ctx, events[i:i+1]); {
		case err == nil:
		case isOutage(ctx, err):
			l.keep(events[i : i+1])
		default:
			l.log.ErrorContext(ctx, "an entry of the security log was not stored", "event", string(events[i].Kind),
				"error", err)
		}
	}
}

func isOutage(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, rules.ErrAway) || errors.Is(err, context.DeadlineExceeded)
}

// print leaves out Typed, because more people read the program's log.
func (l *AccessLog) print(ctx context.Context, e *AccessEvent) {
	l.log.InfoContext(ctx, "access", "event", string(e.Kind), "count", e.Count, "account_id", int64(e.Account), "who",
		e.Who,
		"key_id", e.KeyID, "tenant", e.Tenant, "ip", e.IP.String(), "user_agent", e.UserAgent, "detail", e.Detail,
		"at", e.At, "request_id", e.RequestID)
}

func newAccessID() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return int64(binary.BigEndian.Uint64(random[:])>>11) + 1
}

// Succeeded reports whether the kind is not a refusal.
func (k AccessKind) Succeeded() bool { return !k.isAttempt() || k == AccessResetAsked }
