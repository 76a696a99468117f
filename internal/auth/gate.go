package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// The errors of a Gate beside rules.FieldErrors, rules.ErrNotFound and the store's errors.
var (
	// ErrWrongPassword means an unknown address, a wrong password or a disabled account; a caller cannot tell which.
	ErrWrongPassword = errors.New("wrong e-mail address or password")
	// ErrBusy means that too many passwords are being hashed. The attempt was not counted.
	ErrBusy = errors.New("too many passwords to judge at once")
	// ErrSignedOut means that the token has no live session.
	ErrSignedOut = errors.New("not signed in")
)

// TooSoonError refuses an attempt after too many failures, without checking the password.
type TooSoonError struct{ Wait time.Duration }

// Error contains the wait in seconds, rounded up.
func (e TooSoonError) Error() string {
	return fmt.Sprintf("too many failed attempts; try again in %s", (e.Wait + time.Second - 1).Truncate(time.Second))
}

// Gate signs people in. Safe for concurrent use.
type Gate struct {
	store   Store
	hasher  *hasher
	waits   waits
	sprays  sprays
	options Options
}

// Options configure a Gate; zero values mean the defaults.
type Options struct {
	// IdleLimit ends a session that was not used for this long (24 h), AbsoluteLimit any session (7 days).
	IdleLimit, AbsoluteLimit time.Duration
	// Hashes bounds the passwords that are hashed at once, 19 MiB each (the CPUs, at most 4).
	Hashes int
	// Mail means that a PostOffice sends queued mail.
	Mail bool
	// Vault seals the secrets of second factors, which therefore need a key.
	Vault         Vault
	RequireFactor RequireFactor
	// NoPasswords limits sign-ins to providers and links of SignInLink.
	NoPasswords bool
	// Unfinished receives errors after a successful change: a notice was not queued, or failed attempts were not
	// reset.
	Unfinished func(ctx context.Context, err error)
	Now        func() time.Time
}

// NewGate returns a Gate on a store.
func NewGate(store Store, options Options) *Gate {
	if options.IdleLimit == 0 {
		options.IdleLimit = 24 * time.Hour
	}
	if options.AbsoluteLimit == 0 {
		options.AbsoluteLimit = 7 * 24 * time.Hour
	}
	if options.Hashes == 0 {
		options.Hashes = min(runtime.GOMAXPROCS(0), 4)
	}
	if options.Unfinished == nil {
		options.Unfinished = func(context.Context, error) {}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Gate{store: store, hasher: newHasher(options.Hashes), options: options}
}

const finishTimeout = 5 * time.Second

// finish runs a step after a successful change, even if the caller hangs up: a thief could avoid the notice that
// way. A failed step does not fail the change, whose answer may be the only copy of a secret.
func (g *Gate) finish(ctx context.Context, step func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := step(ctx); err != nil {
		g.options.Unfinished(ctx, err)
	}
}

// Browser is the origin of a sign-in. Its texts are unvalidated.
type Browser struct {
	Session   string // token of the browser's session, which a sign-in ends; "" for none
	Device    string // device token; "" for none
	Tenant    string // slug of the tenant whose sign-in is used; "" for the common one
	Provider  string // slug of the provider that it comes from; "" for none
	UserAgent string
	IP        netip.Addr // failures are counted by its network
}

// Entry is a session and two secrets for the browser.
type Entry struct {
	Session Session
	// Token continues the session, in a cookie that ends with the browser or at AbsoluteLimit.
	Token string
	// Device marks the browser as known at later sign-ins, in a cookie that lives for a year and gives access to
	// nothing.
	Device string
}

// SendsMail reports whether mail is configured.
func (g *Gate) SendsMail() bool { return g.options.Mail }

// TakesPasswords reports whether people can sign in by password.
func (g *Gate) TakesPasswords() bool { return !g.options.NoPasswords }
