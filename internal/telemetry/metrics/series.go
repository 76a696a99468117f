package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// series is a map of metrics that is copied on write, so that a decision or a request takes no lock.
type series[K comparable, V any] struct {
	known  atomic.Pointer[map[K]V]
	adding sync.Mutex
}

func (s *series[K, V]) of(key, other K, most int, register func(K) V) V {
	known := s.load()
	v, ok := known[key]
	if !ok && len(known) >= most {
		key = other
		v, ok = known[key]
	}
	if ok {
		return v
	}
	return s.add(key, register)
}

func (s *series[K, V]) add(key K, register func(K) V) V {
	s.adding.Lock()
	defer s.adding.Unlock()
	known := s.load()
	if v, ok := known[key]; ok {
		return v
	}
	more := maps.Clone(known)
	if more == nil {
		more = map[K]V{}
	}
	more[key] = register(key)
	s.known.Store(&more)
	return more[key]
}

func (s *series[K, V]) load() map[K]V {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return nil
}
