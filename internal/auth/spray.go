package auth

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Who guesses one common password at many addresses makes no address wait. So failures are also counted by network, for all
// addresses together. Known devices are exempt, so whoever shares a network with an attacker signs in from the usual
// browser.
const (
	// freeSprays is how many failures of a network make nobody wait: an office after a holiday has dozens.
	freeSprays = 60
	// sprayEvery is how often one more is let through then, and one is forgotten.
	sprayEvery = 6 * time.Second
	// maxSprays bounds the memory: about 1 MB.
	maxSprays = 10_000
)

// sprays counts the failures of networks, in this process. A failure takes sprayEvery to be forgotten.
type sprays struct {
	sync.Mutex
	// forgottenAt is when all failures of a network are forgotten.
	forgottenAt map[netip.Prefix]time.Time
}

// left is how long attempts from a network have to wait.
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
