package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"
)

// What a Gate answers beside rules.FieldErrors, rules.ErrNotFound and the store's errors.
var (
	// ErrWrongPassword is for an address without an account, a wrong password and a disabled account; the
	// three cannot be told apart.
	ErrWrongPassword = errors.New("wrong e-mail address or password")
	// ErrBusy is for an attempt that was not looked at, because too many are at once. It does not count.
	ErrBusy = errors.New("too many passwords to judge at once")
	// ErrSignedOut is for a token without a live session.
	ErrSignedOut = errors.New("not signed in")
)

// TooSoonError is for an attempt that was not looked at, because too many have failed before.
type TooSoonError struct{ Wait time.Duration }

// Error says how long to wait, in seconds rounded up.
func (e TooSoonError) Error() string {
	return fmt.Sprintf("too many failed attempts; try again in %s", (e.Wait + time.Second - 1).Truncate(time.Second))
}

// Gate is how people get in. It is safe for concurrent use.
type Gate struct {
	store   Store
	hasher  *hasher
	waits   waits
	sprays  sprays
	options Options
}

// Options of a Gate; zero values choose the defaults.
type Options struct {
	// IdleLimit ends a session that was not used for so long (24 h), AbsoluteLimit any session (7 days).
	IdleLimit, AbsoluteLimit time.Duration
	// Hashes is how many passwords are hashed at once, 19 MiB each (the CPUs, at most 4), beside one that is
	// kept for who is known: see the package's Cost.
	Hashes int
	// Mail says that a PostOffice sends queued mail.
	Mail bool
	// Vault seals the secrets of second factors; without a key in it there are none.
	Vault Vault
	// RequireFactor says who must have a second factor.
	RequireFactor RequireFactor
	// NoPasswords lets people sign in at providers only, and by the link of a command.
	NoPasswords bool
	// Unfinished is told what failed after a change was made: its notice was not queued, or the failed attempts before it still
	// count. The change succeeds all the same.
	Unfinished func(ctx context.Context, err error)
	// Now is the clock (time.Now).
	Now func() time.Time
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

// finishTimeout is how long a step of finish may take.
const finishTimeout = 5 * time.Second

// finish takes a step that follows a change that was made. A caller who hangs up does not stop it: a thief would leave no notice
// that way. A step that fails does not fail the change, because its answer may be the only copy of a secret, such as new
// recovery codes.
func (g *Gate) finish(ctx context.Context, step func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := step(ctx); err != nil {
		g.options.Unfinished(ctx, err)
	}
}

// Browser is where somebody signs in from. Its texts are what the browser sent, however wrong.
type Browser struct {
	Session   string // the token of the session that it has, to be ended at sign-in; "" for none
	Device    string // the device token that it has; "" for none
	Tenant    string // the slug of the tenant at whose address it signs in; "" for the common one
	Provider  string // the slug of the provider that it comes from; "" for none
	UserAgent string
	IP        netip.Addr // failures are counted by its network
}

// Entry is what a sign-in gives the browser: a session, and two secrets to keep.
type Entry struct {
	Session Session
	// Token continues the session. It goes into a cookie that ends with the browser or at AbsoluteLimit.
	Token string
	// Device tells at later sign-ins that the account was here before. It goes into a cookie that
	// lives for a year, and gives access to nothing.
	Device string
}

// SendsMail reports whether mail is configured.
func (g *Gate) SendsMail() bool { return g.options.Mail }

// TakesPasswords reports whether people can sign in by password.
func (g *Gate) TakesPasswords() bool { return !g.options.NoPasswords }
