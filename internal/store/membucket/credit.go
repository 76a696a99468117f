package membucket

import (
	"context"
	"maps"

	"github.com/sluicegate/sluice/internal/enforce"
)

type pastCredit struct {
	fingerprint   [32]byte
	before, after enforce.Bucket
	forgottenAt   int64
}

// CreditOnce implements enforce.Creditor, and deletes expired ids.
func (s *Store) CreditOnce(
	_ context.Context, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens,
) (before, after enforce.Bucket, isRepeated bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	maps.DeleteFunc(s.credits, func(_ enforce.Key, past pastCredit) bool { return past.forgottenAt <= now })
	own, fingerprint := enforce.Key{Tenant: key.Tenant, Subject: id}, enforce.CreditFingerprint(key, amount)
	if past, ok := s.credits[own]; ok {
		if past.fingerprint != fingerprint {
			return before, after, false, enforce.ErrCreditIDReused
		}
		return past.before, past.after, true, nil
	}
	before, after = s.credit(key, limit, amount, now)
	s.credits[own] = pastCredit{fingerprint, before, after, now + enforce.CreditsRemembered.Microseconds()}
	return before, after, false, nil
}

// Lease implements enforce.Lender without errors.
func (s *Store) Lease(_ context.Context, leases []enforce.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	for i := range leases {
		l := &leases[i]
		held := s.bucket(l.Key)
		state, mustWrite := enforce.NewState(l.Limit, now), false
		if held != nil {
			state = *held
			mustWrite = state.Advance(l.Limit, 0, now)
		}
		l.Grant, l.Answered = state.Lease(&l.Ask), true
		switch canLease := enforce.CanLease(state.Limit); {
		case held != nil && (mustWrite || canLease):
			*held = state
			s.decided(s.buckets[bounded(l.Key)])
		case held == nil && canLease && state.Entries != "":
			s.decided(s.insert(bounded(l.Key), state, now))
		}
	}
	return nil
}
