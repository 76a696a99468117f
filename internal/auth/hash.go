package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/alexedwards/argon2id"

	"github.com/sluicegate/sluice/internal/meter"
)

// presentCost is the least that OWASP's Password Storage Cheat Sheet recommends for argon2id, 19 MiB and two passes. It may
// be raised: hashes carry their own cost, and weaker ones are renewed at the next sign-in.
var presentCost = argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// maxMemory and maxIterations keep a damaged hash from taking the process down.
const (
	maxMemory     = 1024 * 1024 // KiB
	maxIterations = 64
)

// maxWaiting caps how many wait for their turn to hash a password. More would only wait for the end of their request, so
// they are refused at once.
const maxWaiting = 16

// hasher hashes passwords, a bounded number at once: without the bound 64 parallel sign-ins took 229 MiB.
//
// One slot and a queue are kept for callers with a session, a device or an invitation, so that a flood of anonymous
// sign-ins does not keep them out.
type hasher struct {
	cost             argon2id.Params
	slots, kept      chan struct{}
	strangers, known chan struct{} // callers that wait
	dummy            string        // fits no password, and takes as long as another to find that out
	before           func()        // is called before each run of argon2, for tests
}

func newHasher(slots int) *hasher {
	return &hasher{
		cost: presentCost, slots: make(chan struct{}, slots), kept: make(chan struct{}, 1),
		strangers: make(chan struct{}, maxWaiting), known: make(chan struct{}, maxWaiting),
		dummy: hashed(rand.Text(), &presentCost), before: func() {},
	}
}

// HashPassword returns the hash to store for a password. It neither judges the password nor bounds how many run at once:
// a Gate does.
func HashPassword(password string) string { return hashed(password, &presentCost) }

// hashed returns a hash in the PHC string format: $argon2id$v=19$m=19456,t=2,p=1$<salt>$<key>.
func hashed(password string, cost *argon2id.Params) string {
	hash, err := argon2id.CreateHash(password, cost)
	if err != nil {
		panic(err) // crypto/rand never fails; see its documentation
	}
	return hash
}

// noPasswordSalt is the salt of hashes that no password fits.
const noPasswordSalt = "no password here"

// NoPassword returns the hash of an account that cannot sign in by password. It costs a guesser as much as another,
// and processes that do not know its meaning refuse every password too. Its random part is as secret as that of another.
func NoPassword() string {
	key := make([]byte, presentCost.KeyLength)
	_, _ = rand.Read(key) // it never fails; see its documentation
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", presentCost.Memory, presentCost.Iterations, presentCost.Parallelism,
		base64.RawStdEncoding.EncodeToString([]byte(noPasswordSalt)), base64.RawStdEncoding.EncodeToString(key))
}

// HasPassword reports whether a hash is of a password, and not of NoPassword.
func HasPassword(hash string) bool {
	return !strings.Contains(hash, "$"+base64.RawStdEncoding.EncodeToString([]byte(noPasswordSalt))+"$")
}

// turn waits for a slot, or is ErrBusy at once if too many wait already.
func (h *hasher) turn(ctx context.Context, isKnown bool) (done func(), err error) {
	queue, kept := h.strangers, chan struct{}(nil) // never ready
	if isKnown {
		queue, kept = h.known, h.kept
	}
	endSlot, endKept := func() { <-h.slots }, func() { <-h.kept }
	select {
	case h.slots <- struct{}{}:
		return endSlot, nil
	case kept <- struct{}{}:
		return endKept, nil
	default:
	}
	select {
	case queue <- struct{}{}:
		defer func() { <-queue }()
	default:
		return nil, ErrBusy
	}
	defer meter.Wait(ctx)()
	select {
	case h.slots <- struct{}{}:
		return endSlot, nil
	case kept <- struct{}{}:
		return endKept, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
}

// hash returns the hash to store for a known caller's password, once it is its turn.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	done, err := h.turn(ctx, true)
	if err != nil {
		return "", err
	}
	defer done()
	h.before()
	return hashed(password, &h.cost), nil
}

// verify reports whether a password fits a stored hash, and whether that is weaker than a new one would be. The
// caller has its turn.
func (h *hasher) verify(password, stored string) (fits, weak bool, err error) {
	if err := checkHash(stored); err != nil {
		return false, false, err
	}
	h.before()
	fits, cost, err := argon2id.CheckHash(password, stored)
	if err != nil {
		return false, false, fmt.Errorf("verify a password: %w", err)
	}
	return fits, cost.Memory < h.cost.Memory || cost.Iterations < h.cost.Iterations, nil
}

var errUnreadableHash = errors.New("the stored password hash is not one of argon2id, or its parameters are out of bounds")

// checkHash refuses a stored hash that cannot be read or would cost too much to verify.
func checkHash(stored string) error {
	cost, salt, key, err := argon2id.DecodeHash(stored)
	if err != nil || cost.Memory > maxMemory || cost.Iterations < 1 || cost.Iterations > maxIterations || cost.Parallelism < 1 ||
		len(salt) < 8 || len(key) < 16 || len(key) > 64 {
		return errUnreadableHash
	}
	return nil
}
