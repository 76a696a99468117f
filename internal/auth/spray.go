package auth

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Password spraying tries one common password at many addresses, so failures are also counted by network. Known devices
// are exempt, for people who share a network with an attacker.
const (
	freeSprays = 60              // of a network without a wait: an office after a holiday has dozens
	sprayEvery = 6 * time.Second // until a failure is forgotten, and then between attempts
	maxSprays  = 10_000
)

// sprays counts the failures of networks in this process, in about 1 MB.
type sprays struct {
	sync.Mutex
	forgottenAt map[netip.Prefix]time.Time
}

func (s *sprays) left(from netip.Addr, now time.Time) time.Duration {
	s.Lock()
	defer s.Unlock()
	return s.forgottenAt[rules.SiteNetwork(from)].Add(-(freeSprays - 1) * sprayEvery).Sub(now)
}

func (s *sprays) failed(from netip.Addr, now time.Time) {
	s.Lock()
	defer s.Unlock()
	if len(s.forgottenAt) >= maxSprays {
		maps.DeleteFunc(s.forgottenAt, func(_ netip.Prefix, at time.Time) bool { return !at.After(now) })
	}
	if len(s.forgottenAt) >= maxSprays || s.forgottenAt == nil {
		s.forgottenAt = map[netip.Prefix]time.Time{}
	}
	network := rules.SiteNetwork(from)
	at := s.forgottenAt[network]
	if at.Before(now) {
		at = now
	}
	s.forgottenAt[network] = at.Add(sprayEvery)
}
