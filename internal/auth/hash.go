package auth

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/alexedwards/argon2id"
)

// presentCost is the minimum of OWASP's Password Storage Cheat Sheet for argon2id: 19 MiB and two passes.
var presentCost = argon2id.Params{Memory: 19 * 1024, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// maxMemory and maxIterations keep a corrupt hash from taking the process down.
const (
	maxMemory     = 1024 * 1024 // KiB
	maxIterations = 64
)

const maxWaiting = 16 // more callers would only wait for their deadline

// hasher bounds the passwords that are hashed at once: without a semaphore 64 parallel sign-ins took 229 MiB. A
// slot and a queue are reserved for callers with a session, a device or an invitation, so that a flood of
// anonymous sign-ins does not lock them out.
type hasher struct {
	cost             argon2id.Params
	slots, kept      chan struct{}
	strangers, known chan struct{} // waiting callers
	dummy            string        // for accounts that do not exist
	before           func()        // called before each run of argon2, for tests
}

func newHasher(slots int) *hasher {
	return &hasher{
		cost: presentCost, slots: make(chan struct{}, slots), kept: make(chan struct{}, 1),
		strangers: make(chan struct{}, maxWaiting), known: make(chan struct{}, maxWaiting),
		dummy: NoPassword(), before: func() {},
	}
}

// HashPassword hashes a password, without validation and without the bound of a Gate.
func HashPassword(password string) string { return hashed(password, &presentCost) }

func hashed(password string, cost *argon2id.Params) string {
	hash, err := argon2id.CreateHash(password, cost)
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return hash
}

const noPasswordSalt = "no password here"

// NoPassword returns the hash of an account without a password, as expensive to guess as any other.
func NoPassword() string {
	key := make([]byte, presentCost.KeyLength)
	_, _ = rand.Read(key)
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", presentCost.Memory, presentCost.Iterations,
		presentCost.Parallelism,
		base64.RawStdEncoding.EncodeToString([]byte(noPasswordSalt)), base64.RawStdEncoding.EncodeToString(key))
}

// HasPassword reports whether a hash is not one of NoPassword.
func HasPassword(hash string) bool {
	return !strings.Contains(hash, "$"+base64.RawStdEncoding.EncodeToString([]byte(noPasswordSalt))+"$")
}

// acquire waits for a slot, or returns ErrBusy if too many callers wait.
func (h *hasher) acquire(ctx context.Context, isKnown bool) (done func(), err error) {
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
	select {
	case h.slots <- struct{}{}:
		return endSlot, nil
	case kept <- struct{}{}:
		return endKept, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
}

func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	done, err := h.acquire(ctx, true)
	if err != nil {
		return "", err
	}
	defer done()
	h.before()
	return hashed(password, &h.cost), nil
}

// verify also reports whether the hash is weaker than presentCost, for a caller who holds a slot.
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

var errUnreadableHash = errors.New(
	"the stored password hash is not one of argon2id, or its parameters are out of bounds")

func checkHash(stored string) error {
	cost, salt, key, err := argon2id.DecodeHash(stored)
	if err != nil || cost.Memory > maxMemory || cost.Iterations < 1 || cost.Iterations > maxIterations ||
		cost.Parallelism < 1 ||
		len(salt) < 8 || len(key) < 16 || len(key) > 64 {
		return errUnreadableHash
	}
	return nil
}
