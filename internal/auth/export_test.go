package auth

import (
	"net/netip"

	"github.com/alexedwards/argon2id"
)

// WatchHashes makes passwords cheap to hash, and calls a function before each run of argon2.
func (g *Gate) WatchHashes(watch func()) {
	g.hasher.cost = argon2id.Params{Memory: 8, Iterations: 1, Parallelism: 1, SaltLength: 16, KeyLength: 32}
	g.hasher.dummy = hashed("", &g.hasher.cost)
	g.hasher.before = watch
}

// RaiseCost makes hashes cost more than those that are stored.
func (g *Gate) RaiseCost() { g.hasher.cost.Iterations++ }

// RememberedWaits is how many waits a Gate holds.
func (g *Gate) RememberedWaits() int { return len(g.waits.until) }

// NoteSpray counts a failure of a network.
func (g *Gate) NoteSpray(from netip.Addr) { g.sprays.failed(from, g.options.Now()) }

// RememberedSprays is how many networks a Gate counts failures of.
func (g *Gate) RememberedSprays() int { return len(g.sprays.forgottenAt) }

// Internals that are judged by themselves.
var (
	WrongPassword = wrongPassword
	CheckHash     = checkHash
	NetworkOf     = networkOf
)

// AddressLimits are those of an address whose account has proven it.
func AddressLimits(email string, from netip.Addr) []Limit {
	return addressLimits(addressSubject(email), from)
}
