package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

type usesStore struct {
	mu   sync.Mutex
	away bool
	uses []KeyUse
}

func (s *usesStore) RecordKeyUses(_ context.Context, uses []KeyUse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("away")
	}
	s.uses = append(s.uses, uses...)
	return nil
}

func TestEachMinuteOfAKeyIsWrittenOnceForAsLongAsTheKeyIsHeld(t *testing.T) {
	t.Parallel()
	store := &usesStore{}
	uses := NewKeyUses(store, slog.New(slog.DiscardHandler))
	at := time.Unix(1_800_000_000, 0).UTC()
	a := newKey("a")
	flush := func() {
		t.Helper()
		noError(t, uses.flush(t.Context()))
	}
	for second := range 3 {
		uses.Note(a, at.Add(time.Duration(second)*time.Second))
		flush()
	}
	uses.Note(a, at.Add(-time.Hour))
	flush()
	store.away = true
	uses.Note(a, at.Add(time.Minute))
	if err := uses.flush(t.Context()); err == nil {
		t.Error("a store that is away is no error")
	}
	store.away = false
	flush()
	flush()
	uses.Note(newKey("a"), at.Add(time.Minute)) // a change of the key has reset its uses
	flush()
	if want := []KeyUse{{"a", at}, {"a", at.Add(time.Minute)}, {"a", at.Add(time.Minute)}}; !slices.Equal(store.uses,
		want) {
		t.Errorf("it wrote %v, want %v", store.uses, want)
	}
}

type noteWhileWriting struct{ during func() }

func (s noteWhileWriting) RecordKeyUses(context.Context, []KeyUse) error {
	s.during()
	return errors.New("away")
}

func TestAFailedWriteDoesNotBringAnOlderMinuteBack(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0).UTC()
	a := newKey("a")
	uses := NewKeyUses(nil, slog.New(slog.DiscardHandler))
	uses.store = noteWhileWriting{func() { uses.Note(a, at.Add(time.Minute)) }}
	uses.Note(a, at)
	if err := uses.flush(t.Context()); err == nil {
		t.Fatal("a store that is away is no error")
	}
	store := &usesStore{}
	uses.store = store
	noError(t, uses.flush(t.Context()))
	if want := []KeyUse{{"a", at.Add(time.Minute)}}; !slices.Equal(store.uses, want) {
		t.Errorf("it wrote %v, want %v", store.uses, want)
	}
}

func TestUsesAreWrittenInTimeAndAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &usesStore{}
		uses := NewKeyUses(store, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			uses.Run(ctx)
		}()
		a, b := newKey("a"), newKey("b")
		for range 100 {
			uses.Note(a, time.Now())
		}
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		synctest.Wait()
		if len(store.uses) != 1 {
			t.Errorf("after a minute %v is written", store.uses)
		}
		uses.Note(b, time.Now())
		stop()
		<-ended
		if len(store.uses) != 2 || store.uses[1].KeyID != "b" {
			t.Errorf("at the end %v is written", store.uses)
		}
	})
}

func BenchmarkNote(b *testing.B) {
	uses := NewKeyUses(&usesStore{}, slog.New(slog.DiscardHandler))
	key, at := newKey("0123456789abcdef"), time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			uses.Note(key, at)
		}
	})
}

func newKey(id string) *Key { return &Key{Key: auth.Key{ID: id}} }
