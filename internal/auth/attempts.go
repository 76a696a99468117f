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

// Pace is how failed attempts slow further ones down.
type Pace struct {
	Free    int           // attempts that make nobody wait
	Longest time.Duration // up to which the wait doubles, from 1 s; at most 64 s
}

// The paces of who comes from one place, and of an address wherever attempts at it come from. The loose one
// slows who has many networks: it also holds up an owner in a new browser, so it starts late and ends early.
var (
	Tight = Pace{Free: 5, Longest: time.Minute}
	Loose = Pace{Free: 100, Longest: 4 * time.Second}
)

// ForgottenAfter is how long after the last one attempts stop counting.
const ForgottenAfter = 24 * time.Hour

// WaitAfter is how long after an attempt the next one is looked at, if that many have failed.
func (p Pace) WaitAfter(failures int) time.Duration {
	if failures < p.Free {
		return 0
	}
	const doublings = 6
	return min(p.Longest, time.Second<<min(failures-p.Free, doublings))
}

// subjectOf hashes what is counted for, in a namespace of its kind.
func subjectOf(kind string, what []byte) Subject {
	return sha256.Sum256(append([]byte(kind+"\x00"), what...))
}

func addressSubject(email string) Subject {
	return subjectOf("address", []byte(foldAddress(email)))
}

// accountSubject is that of an address. An unproven account has its own, because its success must not make up for
// guesses at the account of the person who has the address.
func accountSubject(account *Account, email string) Subject {
	if account.Proven() {
		return addressSubject(email)
	}
	return subjectOf("unproven", binary.BigEndian.AppendUint64(nil, uint64(account.ID)))
}

// addressLimits are those of attempts at an address from where no device of its account is known.
func addressLimits(subject Subject, from netip.Addr) []Limit {
	return []Limit{{Counter{subject, anywhere}, Loose}, {Counter{subject, networkOf(from)}, Tight}}
}

// sessionLimits count for the holder of a session, who may be a thief that guesses the password; and
// guesses at the sign-in must not keep the owner from changing it.
func sessionLimits(id int64) []Limit {
	subject := subjectOf("session", binary.BigEndian.AppendUint64(nil, uint64(id)))
	return []Limit{{Counter{subject, anywhere}, Tight}}
}

// anywhere is the network of what is counted wherever it comes from. It sorts before all others.
var anywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// networkOf returns the network whose attempts are counted together. Callers without an address share that of "::".
func networkOf(ip netip.Addr) netip.Prefix {
	if !ip.IsValid() {
		ip = netip.IPv6Unspecified()
	}
	return rules.CustomerNetwork(ip)
}

// mostWaits bounds the memory of a flood; 10,000 waits take about 2 MB.
const mostWaits = 10_000

// waits remembers who was told to wait, so that a flood of guesses at one account is refused without a
// write to the database, which counts for all processes.
type waits struct {
	sync.Mutex
	until map[Counter]time.Time
}

// left is the longest wait of any of the limits.
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
		w.until = map[Counter]time.Time{} // what is lost here, the database still knows
	}
	w.until[counter] = until
}

func (w *waits) forget(subject Subject) {
	w.Lock()
	defer w.Unlock()
	maps.DeleteFunc(w.until, func(counter Counter, _ time.Time) bool { return counter.Subject == subject })
}

// judge counts an attempt and compares its password. It is TooSoonError, ErrBusy or ErrWrongPassword unless that
// fits. It counts when it is its turn: who is turned away, or gives up before, has not guessed.
func (g *Gate) judge(ctx context.Context, limits []Limit, isKnown bool, password, hash string) (weak bool, err error) {
	if wait := g.waits.left(limits, g.options.Now()); wait > 0 {
		return false, TooSoonError{wait}
	}
	done, err := g.hasher.turn(ctx, isKnown)
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

// count counts an attempt, or is TooSoonError.
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
