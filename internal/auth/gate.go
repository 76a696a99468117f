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
	ErrBusy          = errors.New("too many passwords to judge at once") // the attempt was not counted
	ErrSignedOut     = errors.New("not signed in")                       // the token has no live session
)

// TooSoonError refuses an attempt after too many failures, without checking the password.
type TooSoonError struct{ Wait time.Duration }

func (e TooSoonError) Error() string {
	return fmt.Sprintf("too many failed attempts; try again in %s", (e.Wait + time.Second - 1).Truncate(time.Second))
}

// Gate signs people in, and is safe for concurrent use.
type Gate struct {
	store   Store
	hasher  *hasher
	waits   waits
	sprays  sprays
	options Options
}

// Options configure a Gate; zero values mean the defaults.
type Options struct {
	IdleLimit, AbsoluteLimit time.Duration // of an unused session (24 h), and of any (7 days)
	Hashes                   int           // at once, 19 MiB each (the CPUs, at most 4)
	Mail                     bool          // a PostOffice sends queued mail
	Vault                    Vault         // for second factors, which need a key
	RequireFactor            RequireFactor
	NoPasswords              bool // people use providers and links of SignInLink
	// Unfinished receives errors after a successful change: a notice was not queued, or failed attempts were not reset.
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

// finish runs a step after a successful change, even if the caller hangs up: a thief could avoid the notice that way. A
// failed step does not fail the change, whose answer may be the only copy of a secret.
func (g *Gate) finish(ctx context.Context, step func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := step(ctx); err != nil {
		g.options.Unfinished(ctx, err)
	}
}

// Browser is the unvalidated origin of a sign-in.
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
	Token   string // of the session, in a cookie that ends with the browser or at AbsoluteLimit
	Device  string // marks the browser as known, in a cookie that lives for a year
}

// SendsMail reports whether mail is configured.
func (g *Gate) SendsMail() bool { return g.options.Mail }

// TakesPasswords reports whether people can sign in by password.
func (g *Gate) TakesPasswords() bool { return !g.options.NoPasswords }
