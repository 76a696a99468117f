package adapt

import (
	"math"
	"slices"
	"time"
)

// Bounds are the upper bounds of a Histogram's buckets, in milliseconds. Their ratio is at most 2, and 1.5 for
// most, so a percentile is off by less than half.
var Bounds = []int64{
	1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000,
	10_000, 15_000, 20_000, 30_000, 60_000,
}

const buckets = 29

// Histogram counts requests by latency: bucket i counts those above Bounds[i-1] and up to Bounds[i].
type Histogram [buckets]int64

// Bucket returns the index of a latency's bucket.
func Bucket(latency time.Duration) int {
	at, _ := slices.BinarySearchFunc(Bounds, latency, func(bound int64, latency time.Duration) int {
		return int(min(1, max(-1, time.Duration(bound)*time.Millisecond-latency)))
	})
	return at
}

// Count returns the number of requests.
func (h *Histogram) Count() (n int64) {
	for _, count := range h {
		n += count
	}
	return n
}

// P99 returns the 99th percentile, interpolated within its bucket; a little more than the last bound above it, and 0
// without requests.
func (h *Histogram) P99() time.Duration {
	rank := float64(h.Count()) * 0.99
	below := 0.0
	for i, count := range h {
		if count == 0 || below+float64(count) < rank {
			below += float64(count)
			continue
		}
		if i == len(Bounds) {
			return time.Duration(Bounds[i-1])*time.Millisecond + time.Millisecond
		}
		from := 0.0
		if i > 0 {
			from = float64(Bounds[i-1])
		}
		ms := from + (float64(Bounds[i])-from)*(rank-below)/float64(count)
		return time.Duration(math.Ceil(ms*1000)) * time.Microsecond
	}
	return 0
}

// Seen sums up requests to a backend.
type Seen struct {
	Requests int64
	Errors   int64
	Latency  Histogram
}

// Add adds another sum.
func (s *Seen) Add(other *Seen) {
	s.Requests += other.Requests
	s.Errors += other.Errors
	for i := range s.Latency {
		s.Latency[i] += other.Latency[i]
	}
}

// ErrorPercent returns the share of failed requests, in percent.
func (s *Seen) ErrorPercent() float64 {
	if s.Requests == 0 {
		return 0
	}
	return 100 * float64(s.Errors) / float64(s.Requests)
}

// Slice is the sum of reports within SliceLength.
type Slice struct {
	Start time.Time
	Seen
}

// SliceLength is the length of a slice, Window how long slices count.
const (
	SliceLength = 5 * time.Second
	Window      = time.Minute
)
