package envoy

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"

	"github.com/sluicegate/sluice/internal/rules/gateway"
)

const InFlightShare = inFlightShare

func ReadRequest(text []byte) (any, error) {
	r := new(request)
	err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, r)
	return r, err
}

func AsRequest(sent *rls.RateLimitRequest) any {
	r := &request{domain: sent.GetDomain(), hits: sent.GetHitsAddend()}
	for _, d := range sent.GetDescriptors() {
		read := descriptor{
			ownHits: d.GetHitsAddend() != nil, hits: d.GetHitsAddend().GetValue(),
			negative: d.GetIsNegativeHits(),
			limit:    ownLimit{d.GetLimit().GetRequestsPerUnit(), int32(d.GetLimit().GetUnit())},
		}
		for _, e := range d.GetEntries() {
			read.entries = append(read.entries, gateway.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		r.descriptors = append(r.descriptors, read)
	}
	return r
}

func (s *Server) InFlight() int {
	s.inFlight.mu.Lock()
	defer s.inFlight.mu.Unlock()
	return s.inFlight.taken
}
