package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

// cost is what one hash takes: memory in KiB, passes over it, lanes.
type cost struct {
	memory, time uint32
	threads      uint8
}

// presentCost is the least that OWASP's Password Storage Cheat Sheet recommends for argon2id. It may be
// raised: hashes carry their own, and weaker ones are renewed at the next sign-in.
var presentCost = cost{memory: 19 * 1024, time: 2, threads: 1}

// mostMemory and mostTime keep a damaged hash from taking the process down.
const (
	mostMemory = 1024 * 1024 // KiB
	mostTime   = 64
)

const (
	saltLength = 16
	hashLength = 32
)

// mostWaiting is how many wait for their turn to hash a password; further ones are turned away at once, for
// they would only wait for the end of their request.
const mostWaiting = 16

// hasher hashes passwords, a bounded number at once: without the bound 64 parallel sign-ins took 229 MiB.
//
// One slot, and a queue, are kept for who is known by a session, a device or an invitation: whoever floods the
// sign-in from nowhere must not keep them out.
type hasher struct {
	cost             cost
	slots, kept      chan struct{}
	strangers, known chan struct{} // who waits
	dummy            string        // fits no password, and takes as long as another to find that out
	// run is argon2.IDKey; tests watch it.
	run func(password, salt []byte, time, memory uint32, threads uint8, length uint32) []byte
}

func newHasher(slots int) *hasher {
	h := &hasher{
		cost: presentCost, run: argon2.IDKey, slots: make(chan struct{}, slots), kept: make(chan struct{}, 1),
		strangers: make(chan struct{}, mostWaiting), known: make(chan struct{}, mostWaiting),
	}
	h.dummy = encodeHash(h.cost, randomBytes(saltLength), randomBytes(hashLength))
	return h
}

// HashPassword returns what is stored of a password, whatever the password is: the policy is the
// business of a Gate, and so is the bound on how many run at once.
func HashPassword(password string) string {
	salt := randomBytes(saltLength)
	c := presentCost
	return encodeHash(c, salt, argon2.IDKey([]byte(password), salt, c.time, c.memory, c.threads, hashLength))
}

// turn waits for a slot, or is ErrBusy at once if too many wait already.
func (h *hasher) turn(ctx context.Context, isKnown bool) (done func(), err error) {
	queue, kept := h.strangers, chan struct{}(nil) // which is never ready
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

// hash returns what is stored of a password of somebody known, once it is its turn.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	done, err := h.turn(ctx, true)
	if err != nil {
		return "", err
	}
	defer done()
	salt := randomBytes(saltLength)
	return encodeHash(h.cost, salt, h.key(password, salt, h.cost, hashLength)), nil
}

// verify says whether a password fits a stored hash, and whether that is weaker than a new one would be. The
// caller has its turn.
func (h *hasher) verify(password, stored string) (fits, weak bool, err error) {
	c, salt, want, err := decodeHash(stored)
	if err != nil {
		return false, false, err
	}
	got := h.key(password, salt, c, uint32(len(want)))
	fits = subtle.ConstantTimeCompare(got, want) == 1
	return fits, c.memory < h.cost.memory || c.time < h.cost.time, nil
}

func (h *hasher) key(password string, salt []byte, c cost, length uint32) []byte {
	return h.run([]byte(password), salt, c.time, c.memory, c.threads, length)
}

// The PHC string format: $argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>, in unpadded base64.

func encodeHash(c cost, salt, hash []byte) string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memory, c.time, c.threads,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(hash))
}

var errUnreadableHash = errors.New("the stored password hash is not one of argon2id")

func decodeHash(stored string) (c cost, salt, hash []byte, err error) {
	parts := strings.Split(stored, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return cost{}, nil, nil, errUnreadableHash
	}
	_, err = fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.memory, &c.time, &c.threads)
	if err != nil || c.memory > mostMemory || c.time < 1 || c.time > mostTime || c.threads < 1 {
		return cost{}, nil, nil, errUnreadableHash
	}
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[4])
	hash, hashErr := base64.RawStdEncoding.DecodeString(parts[5])
	if saltErr != nil || hashErr != nil || len(salt) < 8 || len(hash) < 16 || len(hash) > 64 {
		return cost{}, nil, nil, errUnreadableHash
	}
	return c, salt, hash, nil
}

func randomBytes(n int) []byte {
	random := make([]byte, n)
	_, _ = rand.Read(random) // it never fails; see its documentation
	return random
}
