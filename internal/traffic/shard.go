package traffic

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
)

type shard struct {
	mu            sync.Mutex
	buffer        []byte
	spare         []byte // memory of the former buffer
	max           int
	used          map[rules.TenantID]int // bytes in the buffer
	counts        map[rules.TenantID]Counts
	emptiedCounts map[rules.TenantID]Counts // the other map while it is read
}

// take empties the shard. The caller must return the buffer by reuse, which ends the use of counts.
func (s *shard) take() (buffer []byte, counts map[rules.TenantID]Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buffer, s.buffer, s.spare = s.buffer, s.spare[:0], nil
	clear(s.used)
	counts = s.counts
	if s.counts = s.emptiedCounts; s.counts == nil {
		s.counts = map[rules.TenantID]Counts{}
	}
	s.emptiedCounts = counts
	return buffer, counts
}

func (s *shard) reuse(buffer []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = buffer
	clear(s.emptiedCounts)
}

// addAll spreads a check evenly until its time, and returns how many of n fit.
func (s *shard) addAll(c *Check, level int, n int64) (added int64) {
	last := c.At
	defer func() { c.At = last }()
	for ; added < n; added++ {
		c.At = last - (n-1-added)*c.Span.Microseconds()/n
		if !s.add(c, level) {
			return added
		}
	}
	return added
}

// add writes a check in full if it is in the sample or denied, else its cost. Returns false if the tenant's share is
// full.
func (s *shard) add(c *Check, level int) bool {
	q := c.Request
	stratum := max(StratumOfUser(c.Tenant, q.UserID), StratumOfIP(c.Tenant, q.IP, c.Settings))
	if q.UserID == "" && !q.IP.IsValid() {
		stratum = StratumOfEndpoint(c.Tenant, q.Endpoint, c.At/1000)
	}
	var flags Flags
	if c.Denied {
		flags |= Denied
	}
	if c.Proxied {
		flags |= Proxied
	}
	if len(c.Costs) > 0 {
		flags |= Metered
	}
	if c.Record {
		flags |= Record
	}
	if c.IsReserved {
		flags |= counted
	}
	isOutside := stratum < level
	start := len(s.buffer)
	if isOutside && !c.DeniedAlone { // a check denied by its user's own limit takes nothing from shared limits
		s.buffer = appendHead(s.buffer, c, stratum, level, Sum|flags&(Metered|Record))
		s.buffer = appendText(appendText(appendText(s.buffer, c.Plan), q.Method), q.Endpoint)
	}
	if !isOutside || c.Denied {
		if isOutside {
			flags |= Extra
		}
		s.buffer = appendHead(s.buffer, c, stratum, level, flags)
		s.buffer = appendText(appendText(appendText(s.buffer, c.Plan), q.Method), q.Endpoint)
		s.buffer = binary.AppendUvarint(s.buffer, uint64(c.Decider))
		s.buffer = appendText(s.buffer, q.UserID)
		s.buffer = appendIP(s.buffer, q.IP)
		for i := range q.Attributes {
			if a := &q.Attributes[i]; a.Value != "" && c.Named != nil && c.Named(a.Name) {
				s.buffer = appendText(appendText(s.buffer, a.Name), a.Value)
			}
		}
		s.buffer = append(s.buffer, 0) // ends the attributes, since no name is empty
	}
	added := len(s.buffer) - start
	mine := s.used[c.Tenant]
	if mine+added > (s.max-(start-mine))/2 {
		s.buffer = s.buffer[:start]
		return false
	}
	s.used[c.Tenant] = mine + added
	return true
}

// A check begins with its tenant, time, stratum, level, flags and cost of requests. Costs of other meters follow, with
// their number: twice the amount, + 1 if counted by user and month, and the name.
func appendHead(b []byte, c *Check, stratum, level int, flags Flags) []byte {
	b = binary.AppendUvarint(b, uint64(c.Tenant))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.At/1000))
	b = append(b, byte(stratum), byte(level), byte(flags))
	b = binary.AppendUvarint(b, uint64(c.Cost))
	if !flags.Is(Metered) {
		return b
	}
	b = append(b, byte(len(c.Costs)))
	for i := range c.Costs {
		twice := uint64(c.Costs[i].Amount) << 1
		if c.Costs[i].IsCounted {
			twice |= 1
		}
		b = binary.AppendUvarint(b, twice)
	}
	for i := range c.Costs {
		b = appendText(b, string(c.Costs[i].Meter))
	}
	return append(b, 0) // ends the names
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

func appendIP(b []byte, ip netip.Addr) []byte {
	switch ip = rules.PlainIP(ip); {
	case ip.Is4():
		four := ip.As4()
		return append(append(b, 4), four[:]...)
	case ip.Is6():
		sixteen := ip.As16() // without the zone, which rules ignore
		return append(append(b, 16), sixteen[:]...)
	}
	return append(b, 0)
}
