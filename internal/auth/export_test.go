package auth

import (
	"net/netip"

	"github.com/alexedwards/argon2id"
)

func (g *Gate) WatchHashes(watch func()) {
	g.hasher.cost = argon2id.Params{Memory: 8, Iterations: 1, Parallelism: 1, SaltLength: 16, KeyLength: 32}
	g.hasher.dummy = hashed("", &g.hasher.cost)
	g.hasher.before = watch
}

func (g *Gate) RaiseCost() { g.hasher.cost.Iterations++ }

func (g *Gate) RememberedWaits() int { return len(g.waits.until) }

func (g *Gate) NoteSpray(from netip.Addr) { g.sprays.failed(from, g.options.Now()) }

func (g *Gate) RememberedSprays() int { return len(g.sprays.forgottenAt) }

var (
	WrongPassword = wrongPassword
	CheckHash     = checkHash
	NetworkOf     = networkOf
)

func AddressLimits(email string, from netip.Addr) []Limit {
	return addressLimits(addressSubject(email), from)
}
