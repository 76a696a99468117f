package redisbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// script is one run of a Lua script in a batch: a takeScript, a leaseScript or a call. The Lua file describes arguments
// and reply.
type script interface {
	run() *scriptRun
	// parts is how many parts can be sent apart.
	parts() int
	// command returns the run on a node; a stamp of 0 is Redis's clock.
	command(ctx context.Context, n *node, bySource bool, stamp int64) *noRetryCmd
	// readReply answers the checks. After an error only some may be Answered.
	readReply(reply string) error
}

type scriptRun struct {
	checks []*enforce.BucketCheck
	cmd    *noRetryCmd // nil while the breaker is open
	err    error       // why there is no answer
}

func (r *scriptRun) run() *scriptRun { return r }

func (r *scriptRun) parts() int { return len(r.checks) }

func (r *scriptRun) reset() {
	clear(r.checks)
	*r = scriptRun{checks: r.checks[:0]}
}

// ErrUnknownVersion means that a newer process wrote a bucket, which is unchanged.
var ErrUnknownVersion = errors.New("a bucket has a format that this process does not know; finish the upgrade")

// ErrOtherWindow means that Redis's clock is in none of the windows that this process sent.
var ErrOtherWindow = errors.New(
	"the clocks of redis and of this process are more than a calendar window apart; set both by NTP")

const (
	statusUnknown = 2
	statusOutside = 5
	statusLost    = 6
)

func (s *Store) refusal(status byte) error {
	switch status {
	case statusUnknown:
		s.unknown.Add(1)
		return nothingTaken(ErrUnknownVersion)
	case statusOutside:
		return nothingTaken(ErrOtherWindow)
	case statusLost:
		return nothingTaken(errLost)
	}
	return nil
}

// noRetryCmd may have taken tokens, but ClusterClient would repeat it even with MaxRetries at -1.
type noRetryCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (*noRetryCmd) NoRetry() bool { return true }

// stampArg is a test's time, or empty for Redis's clock.
func stampArg(stamp int64) any {
	if stamp == 0 {
		return ""
	}
	return stamp
}

func appendFloat(buf []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(buf, math.Float64bits(f))
}

func appendLimit(buf []byte, limit enforce.Limit, calendars *uint16) []byte {
	buf = appendFloat(buf, limit.Rate)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(limit.Burst))
	buf = appendFloat(buf, float64(limit.Since))
	buf = appendFloat(buf, float64(limit.Interval))
	buf = binary.LittleEndian.AppendUint16(buf, uint16(limit.Kind))
	number := uint16(0)
	if limit.Interval < 0 {
		*calendars++
		number = *calendars
	}
	return binary.LittleEndian.AppendUint16(buf, number)
}

func appendCalendar(buf []byte, limit enforce.Limit, stamp int64) []byte {
	if stamp == 0 {
		stamp = time.Now().UnixMicro()
	}
	if starts, ok := limit.CalendarStarts(stamp); ok {
		for _, start := range starts {
			buf = appendFloat(buf, float64(start))
		}
	}
	return buf
}

func limitAt(s string) enforce.Limit {
	return enforce.Limit{
		Rate: float(s), Burst: int64(uint32At(s[8:])), Since: int64(float(s[12:])),
		Interval: int64(float(s[20:])), Kind: rules.Kind(s[28]),
	}
}

func float(s string) float64 {
	return math.Float64frombits(uint64(uint32At(s)) | uint64(uint32At(s[4:]))<<32)
}

func uint32At(s string) uint32 {
	_ = s[3]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
