package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

type fickleStore struct {
	AccessStore
	fail   func(events []AccessEvent) error
	stored map[int64]AccessEvent
}

func (s *fickleStore) WriteAccess(_ context.Context, events []AccessEvent) error {
	if err := s.fail(events); err != nil {
		return err
	}
	for _, e := range events {
		s.stored[e.ID] = e
	}
	return nil
}

func (s *fickleStore) kinds() string {
	count := map[AccessKind]int64{}
	for _, e := range s.stored {
		count[e.Kind] += e.Count
	}
	return fmt.Sprint(count)
}

func TestTheSecurityLogLosesNothingWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	var failure error
	store := &fickleStore{fail: func([]AccessEvent) error { return failure }, stored: map[int64]AccessEvent{}}
	log := NewAccessLog(store, slog.New(slog.NewTextHandler(&text, nil)), time.Now)
	ada := AccessEvent{Kind: AccessSignedIn, Account: 7, Who: "ada@example.com"}
	log.Note(ada)
	if got := store.kinds(); got != "map[signed_in:1]" {
		t.Errorf("before the answer the store has %s, want the sign-in", got)
	}
	failure = rules.ErrAway
	log.Note(ada)
	log.Note(AccessEvent{Kind: AccessSignInFailed, Typed: "not an address"})
	log.Flush(t.Context())
	log.Flush(t.Context())
	if got := store.kinds(); got != "map[signed_in:1]" {
		t.Errorf("the store has %s", got)
	}
	failure = nil
	log.Flush(t.Context())
	log.Flush(t.Context())
	if got := store.kinds(); got != "map[sign_in_failed:1 signed_in:2]" {
		t.Errorf("afterwards the store has %s, want all", got)
	}
	for _, e := range store.stored {
		if e.Typed != "" {
			t.Errorf("%q was stored as an address", e.Typed)
		}
	}
	if lines := strings.Count(text.String(), "msg=access"); lines != 3 ||
		strings.Count(text.String(), "wait in memory") != 1 {
		t.Errorf("%d lines tell of 3 events:\n%s", lines, text.String())
	}
}

func TestAnEntryThatCannotBeStoredKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	poison := errors.New("poison")
	store := &fickleStore{stored: map[int64]AccessEvent{}, fail: func(events []AccessEvent) error {
		for _, e := range events {
			if e.Typed == "poison@example.com" {
				return poison
			}
		}
		return nil
	}}
	log := NewAccessLog(store, slog.New(slog.DiscardHandler), time.Now)
	for _, typed := range []string{"a@example.com", "poison@example.com", "b@example.com"} {
		log.Note(AccessEvent{Kind: AccessSignInFailed, Typed: typed})
	}
	log.Flush(t.Context())
	if got := store.kinds(); got != "map[sign_in_failed:2]" {
		t.Errorf("the store has %s, want the other two", got)
	}
}

func TestADayOfAttacksIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	store := &fickleStore{fail: func([]AccessEvent) error { return nil }, stored: map[int64]AccessEvent{}}
	log := NewAccessLog(store, slog.New(slog.DiscardHandler), func() time.Time { return now })
	const minutes, each = 24 * 60, 400
	for minute := range minutes {
		for n := range each {
			log.Note(AccessEvent{
				Kind: AccessSignInFailed,
				IP:   netip.AddrFrom4([4]byte{203, byte(minute), byte(n >> 8), byte(n)}),
			})
		}
		for n := range 10 { // an account that loops
			log.Note(AccessEvent{Kind: AccessExported, Account: 7, Detail: fmt.Sprint(n)})
		}
		log.Flush(t.Context())
		now = now.Add(time.Minute)
	}
	var strange, known, events int64
	for _, e := range store.stored {
		events += e.Count
		if e.Account == 0 {
			strange++
		} else {
			known++
		}
	}
	if strange > accessOfAllDaily+minutes || known > accessOfAccountDaily+minutes || events != minutes*(each+10) {
		t.Errorf("a day has %d entries of strangers and %d of an account, with %d events in all, want at most %d, "+
			"%d, and exactly %d",
			strange, known, events, accessOfAllDaily+minutes, accessOfAccountDaily+minutes, minutes*(each+10))
	}
}
