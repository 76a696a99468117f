package redisbucket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// A Redis that was emptied, or went back to an older state, must not refill long limits. A tenant's key has its era:
// the server's run id, and when that server first saw the tenant's data. An emptied Redis has no key, and one that went
// back another run id; then a script begins an era. A long limit's bucket that is missing or from before is lost: the
// script takes nothing, and Store.restore writes the newest known state. If no long limit was used before, the era says
// so, and nothing is lost.
//
// To look at the run id takes 30 µs, so a process sends the era that it knows, unless it connected since. After a
// restart or failover all connections are new, and the value is chosen once the script has one. Behind a proxy that
// keeps connections only an emptied Redis is noticed.
//
// Scripts answer errLost for a lost bucket; untilRestored and submitLong have it restored and ask again.

// An era's value has eraBytes, with eraNew as the last; see bucket.lua.
const (
	eraBytes = 40 + 8 + 8 + 1
	eraNew   = "\x01"
)

var errLost = errors.New("redis may have lost the bucket")

type eras struct {
	connects *atomic.Int64 // counts new connections
	mu       sync.RWMutex
	of       map[rules.TenantID]era
}

type era struct {
	value    string
	connects int64 // when a script that learned it was sent
}

func (e *eras) value(tenant rules.TenantID) era {
	if e == nil {
		return era{}
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.of[tenant]
}

func (e *eras) learn(tenant rules.TenantID, learned era) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.of[tenant]; known.connects <= learned.connects {
		e.of[tenant] = era{strings.Clone(learned.value), learned.connects}
	}
}

type expectedEras struct {
	script   *takeScript
	node     *node // nil: no value is expected
	connects int64 // when it was marshaled
	text     []byte
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (e *expectedEras) MarshalBinary() ([]byte, error) {
	s := e.script
	var known *eras
	if e.node != nil {
		known = e.node.eras
	}
	b := binary.LittleEndian.AppendUint16(e.text[:0], uint16(len(s.eras)))
	for i := range s.limitOf {
		number := uint16(0)
		if i < len(s.eraOf) {
			number = s.eraOf[i]
		}
		b = binary.LittleEndian.AppendUint16(b, number)
	}
	for i, tenant := range s.eras {
		value, connects := known.expected(tenant)
		if i == 0 {
			e.connects = connects // the fewest
		}
		b = append(b, value...)
	}
	e.text = b
	return b, nil
}

var unknownEra = strings.Repeat("\x00", eraBytes)

func (e *eras) expected(tenant rules.TenantID) (value string, connects int64) {
	if e == nil {
		return unknownEra, 0
	}
	connects = e.connects.Load()
	if known := e.value(tenant); known.value != "" && known.connects == connects {
		return known.value, connects
	}
	return unknownEra, connects
}

type eraExpected struct {
	eras   *eras
	tenant rules.TenantID
}

func (s *Store) eraExpected(tenant rules.TenantID) eraExpected {
	return eraExpected{s.nodeOf(tenant).eras, tenant}
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (e eraExpected) MarshalBinary() ([]byte, error) {
	value, _ := e.eras.expected(e.tenant)
	return []byte(value), nil
}

type someLong struct {
	eraExpected
	isLong []byte
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (e someLong) MarshalBinary() ([]byte, error) {
	value, err := e.eraExpected.MarshalBinary()
	return append(value, e.isLong...), err
}

func (s *takeScript) readEras(reply string) (rest string, err error) {
	if len(s.eras) == 0 {
		return reply, nil
	}
	if reply == "" {
		return "", errors.New("a reply without eras")
	}
	end := len(reply) - 1
	if reply[end] == 0 {
		return reply[:end], nil
	}
	start := end - len(s.eras)*eraBytes
	if start < 0 {
		return "", fmt.Errorf("an unexpected reply of %d bytes with %d eras", len(reply), len(s.eras))
	}
	for i, tenant := range s.eras {
		if n := s.expected.node; n != nil {
			n.eras.learn(tenant, era{reply[start+i*eraBytes:][:eraBytes], s.expected.connects})
		}
	}
	return reply[:start], nil
}

// RecoverBy sets who knows buckets that take that long to refill, before the first Take.
func (s *Store) RecoverBy(recovery enforce.Recovery, above time.Duration) {
	s.recovery, s.above = recovery, above
}

// ForgetTenant removes a removed tenant's era; all other keys expire.
func (s *Store) ForgetTenant(ctx context.Context, tenant rules.TenantID) error {
	if err := s.rdb.Del(ctx, string(appendEraKey(nil, s.prefix, tenant))).Err(); err != nil {
		return fmt.Errorf("remove the era of tenant %d: %w", tenant, err)
	}
	return nil
}

func (s *Store) isLong(limit enforce.Limit) bool { return enforce.IsLong(limit, s.above) }

func (s *Store) countConnections(rdb redis.UniversalClient) {
	hook := connectHook{&s.connects}
	if cluster, isCluster := rdb.(*redis.ClusterClient); isCluster {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
		return
	}
	rdb.AddHook(hook)
}

type connectHook struct{ connects *atomic.Int64 }

// DialHook implements redis.Hook.
func (h connectHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			h.connects.Add(1)
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (connectHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (connectHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type lostBucket struct {
	key   string      // in Redis
	place enforce.Key // bounded
	limit enforce.Limit
}

func (s *Store) lostBucketOf(key enforce.Key, limit enforce.Limit) lostBucket {
	return lostBucket{string(appendKey(nil, s.prefix, key)), key.Bounded(), limit}
}

// budgetsToRecover caps a call with lost buckets, because each attempt may find more.
const budgetsToRecover = 2

func (s *Store) untilRestored(tenant rules.TenantID, attempt func() (lost []lostBucket, err error)) error {
	began := time.Now()
	lost, err := attempt()
	for errors.Is(err, errLost) && time.Since(began) < budgetsToRecover*s.budget {
		if restoreErr := s.restore(tenant, "", lost); restoreErr != nil {
			return nothingTaken(restoreErr)
		}
		lost, err = attempt()
	}
	return err
}

func (s *Store) submitLong(checks []enforce.BucketCheck) error {
	began := time.Now()
	err := s.submit(checks)
	for errors.Is(err, errLost) && time.Since(began) < budgetsToRecover*s.budget {
		lost := map[rules.TenantID][]lostBucket{}
		for i := range checks {
			for j := range checks[i].Tiers {
				tier := &checks[i].Tiers[j]
				if !checks[i].Answered && tier.Bucket.Level.Micros == lostMicros {
					lost[tier.Key.Tenant] = append(lost[tier.Key.Tenant], s.lostBucketOf(tier.Key, tier.Limit))
				}
			}
		}
		for tenant, buckets := range lost {
			value := s.nodeOf(tenant).eras.value(tenant).value // from the answer
			if restoreErr := s.restore(tenant, value, buckets); restoreErr != nil {
				return nothingTaken(restoreErr)
			}
		}
		err = s.submit(checks)
	}
	return err
}

// restore writes the newest known states; an empty value of the era is read first.
func (s *Store) restore(tenant rules.TenantID, value string, buckets []lostBucket) error {
	if value == "" {
		known, connects := s.nodeOf(tenant).eras, s.connects.Load()
		var err error
		if value, err = s.runRestore(tenant, unknownEra, nil, nil); err != nil {
			return err
		}
		known.learn(tenant, era{value, connects})
	}
	slices.SortFunc(buckets, func(a, b lostBucket) int { return strings.Compare(a.key, b.key) })
	buckets = slices.CompactFunc(buckets, func(a, b lostBucket) bool { return a.key == b.key })
	places := make([]enforce.Key, len(buckets))
	for i := range buckets {
		places[i] = buckets[i].place
	}
	known, isNew, err := s.recovery.Recover(places, int64(float(value[eraBytes-9:])))
	if err != nil {
		return fmt.Errorf("recover %d buckets that redis may have lost: %w", len(buckets), err)
	}
	if isNew {
		_, err = s.runRestore(tenant, value[:eraBytes-1]+eraNew, nil, nil)
		return err
	}
	for start := 0; start < len(buckets); start += inOneScript {
		end := min(start+inOneScript, len(buckets))
		if _, err := s.runRestore(tenant, value, buckets[start:end], known[start:end]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) runRestore(
	tenant rules.TenantID, expected string, buckets []lostBucket, known []enforce.Checkpoint,
) (value string, err error) {
	stamp := s.stamp()
	c := call{source: restoreSource, weight: ownScript(len(buckets))}
	var limits, calendars []byte
	count := uint16(0)
	for i := range buckets {
		c.keys = append(c.keys, buckets[i].key)
		limits = appendLimit(limits, buckets[i].limit, &count)
		calendars = appendCalendar(calendars, buckets[i].limit, stamp)
	}
	c.keys = append(c.keys, string(appendEraKey(nil, s.prefix, tenant)))
	c.args = []any{limits, calendars, expected, stampArg(stamp)}
	for i := range known {
		var state []byte
		if known[i].Stamp > 0 {
			state = appendState(appendFloat(nil, float64(known[i].Stamp)), &known[i].State)
		}
		c.args = append(c.args, state)
	}
	if value, err = s.run(tenant, &c); err == nil && len(value) != eraBytes {
		err = fmt.Errorf("an unexpected reply of %d bytes", len(value))
	}
	if err != nil {
		return "", fmt.Errorf("restore %d buckets that redis may have lost: %w", len(buckets), err)
	}
	return value, nil
}

func appendState(b []byte, s *enforce.State) []byte {
	const version = 2
	former := float64(s.Former)
	if s.Limit.Kind == rules.KindFixedWindow && s.Limit.Interval < 0 {
		_, end := s.Limit.WindowAt(s.Stamp)
		former = max(former, float64(end))
	}
	le := binary.LittleEndian
	b = appendFloat(append(b, version, byte(s.Limit.Kind)), float64(s.Level.Micros))
	b = appendFloat(le.AppendUint32(b, s.Level.Fraction), float64(s.Stamp))
	b = le.AppendUint32(appendFloat(b, s.Limit.Rate), uint32(s.Limit.Burst))
	b = appendFloat(appendFloat(b, float64(s.Limit.Since)), float64(s.Limit.Interval))
	return appendFloat(b, former)
}
