package auth

import (
	"golang.org/x/crypto/argon2"
)

// WatchHashes makes passwords cheap to hash, and calls a function before each run of argon2.
func (g *Gate) WatchHashes(watch func()) {
	g.hasher.cost = cost{memory: 8, time: 1, threads: 1}
	g.hasher.dummy = encodeHash(g.hasher.cost, randomBytes(saltLength), randomBytes(hashLength))
	g.hasher.run = func(password, salt []byte, time, memory uint32, threads uint8, length uint32) []byte {
		watch()
		return argon2.IDKey(password, salt, time, memory, threads, length)
	}
}

// RaiseCost makes hashes cost more than those that are stored.
func (g *Gate) RaiseCost() { g.hasher.cost.time++ }

// RememberedWaits is how many waits a Gate holds.
func (g *Gate) RememberedWaits() int { return len(g.waits.until) }

// Internals that are judged by themselves.
var (
	WrongPassword = wrongPassword
	DecodeHash    = decodeHash
	AddressLimits = addressLimits
	NetworkOf     = networkOf
)
