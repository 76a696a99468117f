package adapt

import (
	"math"
	"slices"
	"time"
)

// Bounds are the upper bounds of a Histogram's buckets, in milliseconds. Their ratio is at most 2, and 1.5 for most, so that
// a percentile within a bucket is off by less than half. Every reporter uses the same, so that sums are exact.
var Bounds = []int64{
	1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000,
	10_000, 15_000, 20_000, 30_000, 60_000,
}

// buckets has one for latencies above all bounds.
const buckets = 29

// Histogram counts requests by their latency: those in bucket i took at most Bounds[i], and more than the bound before.
type Histogram [buckets]int64

// Bucket returns the bucket of a latency.
func Bucket(latency time.Duration) int {
	at, _ := slices.BinarySearchFunc(Bounds, latency, func(bound int64, latency time.Duration) int {
		return int(min(1, max(-1, time.Duration(bound)*time.Millisecond-latency)))
	})
	return at
}

// Count returns how many requests the histogram counts.
func (h *Histogram) Count() (n int64) {
	for _, count := range h {
		n += count
	}
	return n
}

// P99 returns the 99th percentile, as if the latencies of a bucket were evenly spread. It is exact where it is compared
// with a bound. Above the last bound it is that bound and more. Without requests it is 0.
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

// Seen is what services saw of a backend.
type Seen struct {
	Requests int64
	Errors   int64 // of these
	// Latency counts those requests of which the latency is known.
	Latency Histogram
}

// Add adds what others saw.
func (s *Seen) Add(other *Seen) {
	s.Requests += other.Requests
	s.Errors += other.Errors
	for i := range s.Latency {
		s.Latency[i] += other.Latency[i]
	}
}

// ErrorPercent returns the share of failed requests.
func (s *Seen) ErrorPercent() float64 {
	if s.Requests == 0 {
		return 0
	}
	return 100 * float64(s.Errors) / float64(s.Requests)
}

// Slice is what was reported within SliceLength.
type Slice struct {
	Start time.Time
	Seen
}

// SliceLength is the length of a slice, and Window how long slices count.
const (
	SliceLength = 5 * time.Second
	Window      = time.Minute
)
