package auth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Pace is the back-off after failed attempts.
type Pace struct {
	Free    int           // attempts without a wait
	Longest time.Duration // bound of the wait, which doubles from 1 s; at most 64 s
}

// Tight limits attempts on an address from one network, Loose from anywhere. Loose also slows the owner in a new
// browser, and therefore starts late and waits little.
var (
	Tight = Pace{Free: 5, Longest: time.Minute}
	Loose = Pace{Free: 100, Longest: 4 * time.Second}
)

// ForgottenAfter is how long after the last attempt its counter is reset.
const ForgottenAfter = 24 * time.Hour

// WaitAfter returns the wait after this many failures.
func (p Pace) WaitAfter(failures int) time.Duration {
	if failures < p.Free {
		return 0
	}
	const doublings = 6
	return min(p.Longest, time.Second<<min(failures-p.Free, doublings))
}

func subjectOf(kind string, what []byte) Subject {
	return sha256.Sum256(append([]byte(kind+"\x00"), what...))
}

func addressSubject(email string) Subject {
	return subjectOf("address", []byte(foldAddress(email)))
}

// claimSubject is separate from the address's: signing in to an unproven account must not reset the guesses at the
// account that has proven the address.
func claimSubject(tenant, email string) Subject {
	return subjectOf("claim", []byte(tenant+"\x00"+foldAddress(email)))
}

func addressLimits(subject Subject, from netip.Addr) []Limit {
	return []Limit{{Counter{subject, anywhere}, Loose}, {Counter{subject, networkOf(from)}, Tight}}
}

// sessionLimits slows a thief of a session who guesses the password. Guesses at the sign-in do not keep the owner from
// a password change.
func sessionLimits(id int64) []Limit {
	subject := subjectOf("session", binary.BigEndian.AppendUint64(nil, uint64(id)))
	return []Limit{{Counter{subject, anywhere}, Tight}}
}

var anywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0) // sorts first, as Store.Attempt requires

// networkOf returns the network that shares a counter; "::" for callers without an address.
func networkOf(ip netip.Addr) netip.Prefix {
	if !ip.IsValid() {
		ip = netip.IPv6Unspecified()
	}
	return rules.CustomerNetwork(ip)
}

const mostWaits = 10_000

// waits caches waits, so that a flood of guesses at one account causes no writes to the database. mostWaits bounds
// the memory to about 2 MB.
type waits struct {
	sync.Mutex
	until map[Counter]time.Time
}

func (w *waits) left(limits []Limit, now time.Time) (longest time.Duration) {
	w.Lock()
	defer w.Unlock()
	for _, limit := range limits {
		longest = max(longest, w.until[limit.Counter].Sub(now))
	}
	return longest
}

func (w *waits) remember(counter Counter, until, now time.Time) {
	w.Lock()
	defer w.Unlock()
	if len(w.until) >= mostWaits {
		maps.DeleteFunc(w.until, func(_ Counter, until time.Time) bool { return !until.After(now) })
	}
	if len(w.until) >= mostWaits || w.until == nil {
		w.until = map[Counter]time.Time{} // the database still has the waits
	}
	w.until[counter] = until
}

func (w *waits) forget(subject Subject) {
	w.Lock()
	defer w.Unlock()
	maps.DeleteFunc(w.until, func(counter Counter, _ time.Time) bool { return counter.Subject == subject })
}

// judge compares the password, and counts the attempt if it reaches the hasher.
func (g *Gate) judge(ctx context.Context, limits []Limit, isKnown bool, password, hash string) (weak bool, err error) {
	if wait := g.waits.left(limits, g.options.Now()); wait > 0 {
		return false, TooSoonError{wait}
	}
	done, err := g.hasher.acquire(ctx, isKnown)
	if err != nil {
		return false, err
	}
	defer done()
	if err := g.count(ctx, limits); err != nil {
		return false, err
	}
	fits, weak, err := g.hasher.verify(password, hash)
	if err == nil && !fits {
		err = ErrWrongPassword
	}
	return weak, err
}

func (g *Gate) count(ctx context.Context, limits []Limit) error {
	now := g.options.Now()
	if wait := g.waits.left(limits, now); wait > 0 {
		return TooSoonError{wait}
	}
	by, wait, err := g.store.Attempt(ctx, limits)
	if err != nil {
		return err
	}
	if wait > 0 {
		g.waits.remember(by, now.Add(wait), now)
		return TooSoonError{wait}
	}
	return nil
}

func (g *Gate) forget(ctx context.Context, subject Subject) {
	g.waits.forget(subject)
	g.finish(ctx, func(ctx context.Context) error { return g.store.ForgetAttempts(ctx, subject) })
}
