package auth_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestWaitsDoubleUpToAMinute(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		0: 0, 4: 0, 5: time.Second, 6: 2 * time.Second, 10: 32 * time.Second, 11: time.Minute, 1 << 40: time.Minute,
	} {
		if got := auth.WaitAfter(failures); got != want {
			t.Errorf("after %d failures the wait is %s, want %s", failures, got, want)
		}
	}
}

// guess tries wrong passwords until one is not looked at, at most so many times.
func guess(t *testing.T, gate *auth.Gate, email string, most int) (looked int, wait time.Duration) {
	t.Helper()
	for looked = range most {
		_, err := gate.SignIn(t.Context(), email, "guess", auth.Browser{})
		var tooSoon auth.TooSoonError
		if errors.As(err, &tooSoon) {
			return looked, tooSoon.Wait
		}
		wantError(t, err, auth.ErrWrongPassword)
	}
	return most, 0
}

func TestGuessesAreSlowedAlikeForAllAddresses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	for _, email := range []string{adaEmail, "nobody@example.com"} {
		looked, wait := guess(t, w.Gate, email, 20)
		if looked != auth.FreeAttempts || wait <= 0 || wait > time.Second {
			t.Errorf("%s: %d guesses are looked at and then told to wait %s", email, looked, wait)
		}
		hashed := w.hashes.Load()
		_, err := w.SignIn(t.Context(), email, adaPassword, auth.Browser{})
		if !errors.As(err, &auth.TooSoonError{}) || w.hashes.Load() != hashed {
			t.Errorf("%s: the right password is looked at too soon: %v", email, err)
		}
	}
	elsewhere := w.newGate(w.store, auth.Options{})
	if looked, _ := guess(t, elsewhere, "ADA@example.com", 1); looked > 0 {
		t.Error("another process, or another case, starts over")
	}
}

func TestWaitsGrowAndAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	counter := auth.AddressCounter(adaEmail)
	pass := func(interval string) {
		w.exec(t, "UPDATE login_failure SET last_at = last_at - $1::interval", interval)
	}
	attempt := func() time.Duration { return must(w.store.Attempt(t.Context(), counter))(t) }
	for range auth.FreeAttempts {
		if wait := attempt(); wait != 0 {
			t.Fatalf("a free attempt must wait %s", wait)
		}
	}
	for _, seconds := range []float64{1, 2, 4, 8, 16, 32, 60, 60} {
		if wait := attempt().Seconds(); wait <= seconds-1 || wait > seconds {
			t.Errorf("the wait is %.3f s, want %.0f s", wait, seconds)
		}
		pass(fmt.Sprintf("%f seconds", seconds))
		if wait := attempt(); wait != 0 {
			t.Errorf("after %.0f s the wait is %s", seconds, wait)
		}
	}
	pass("-1 hour") // as if the clock had stepped back
	if wait := attempt(); wait != 0 {
		t.Errorf("a clock that stepped back makes the wait %s", wait)
	}
	pass("23 hours 59 minutes")
	if attempt(); attempt() == 0 {
		t.Error("within a day failures are forgotten")
	}
	pass("24 hours 1 minute")
	for range auth.FreeAttempts {
		if wait := attempt(); wait != 0 {
			t.Errorf("after a day the wait is %s", wait)
		}
	}
}

func TestASuccessForgetsFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	guess(t, w.Gate, adaEmail, auth.FreeAttempts-1)
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	if looked, _ := guess(t, w.Gate, adaEmail, 20); looked != auth.FreeAttempts {
		t.Errorf("%d guesses are free after a success, want %d", looked, auth.FreeAttempts)
	}
}

func TestOldFailuresAreCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	w.exec(t, "INSERT INTO login_failure SELECT sha256(n::text::bytea), 1, now() - interval '25 hours' FROM generate_series(1, 25) AS n")
	for range 3 {
		_, _ = w.SignIn(t.Context(), adaEmail, "guess", laptop())
	}
	if n := w.count(t, "SELECT count(*) FROM login_failure"); n != 1 {
		t.Errorf("%d counters are left, want ada's", n)
	}
}

// TestParallelGuessesDoNotPassTogether lets 100 guesses in two processes come at once, each time when one
// of them may be looked at.
func TestParallelGuessesDoNotPassTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	for range auth.FreeAttempts {
		_, _ = w.SignIn(t.Context(), adaEmail, "guess", auth.Browser{})
	}
	w.exec(t, "UPDATE login_failure SET failures = 20") // so that no second wait ends while the test runs
	for round := range 4 {
		w.exec(t, "UPDATE login_failure SET last_at = now() - interval '59 seconds' - $1 * interval '2 seconds'", round%2)
		gates := []*auth.Gate{w.newGate(w.store, auth.Options{}), w.newGate(w.store, auth.Options{})}
		before := w.hashes.Load()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				_, err := gates[i%2].SignIn(t.Context(), adaEmail, "guess", auth.Browser{})
				if !errors.Is(err, auth.ErrWrongPassword) && !errors.Is(err, auth.ErrBusy) && !errors.As(err, &auth.TooSoonError{}) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if looked := w.hashes.Load() - before; looked > 1 || looked == 0 && round%2 == 1 {
			t.Errorf("round %d: %d of 100 parallel guesses are looked at", round, looked)
		}
	}
}

func TestAKnownDeviceIsNotKeptOutByOthersGuesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	_, evil := w.join(t, "eve@example.com", auth.Viewer)
	home := auth.Browser{Device: must(w.SignIn(ctx, adaEmail, adaPassword, laptop()))(t).Device}
	flood := func() {
		w.exec(t, "UPDATE login_failure SET failures = 100, last_at = now()")
		guess(t, w.Gate, adaEmail, 6)
		w.exec(t, "UPDATE login_failure SET failures = 100, last_at = now() WHERE counter = $1", counterBytes(adaEmail))
	}
	signIn := func(from auth.Browser) error {
		_, err := w.SignIn(ctx, adaEmail, adaPassword, from)
		return err
	}
	flood()
	if err := signIn(home); err != nil {
		t.Errorf("a known device is told %v", err)
	}
	damaged := []byte(home.Device)
	damaged[3] ^= 1
	for name, device := range map[string]string{"none": "", "another account's": evil.Device, "a damaged": string(damaged), "an empty": "AAAA"} {
		if err := signIn(auth.Browser{Device: device}); !errors.As(err, &auth.TooSoonError{}) {
			t.Errorf("with %s device token: %v", name, err)
		}
	}
	t.Run("which has its own limit", func(t *testing.T) {
		for range auth.FreeAttempts {
			_, err := w.SignIn(ctx, adaEmail, "guess", home)
			wantError(t, err, auth.ErrWrongPassword)
		}
		if err := signIn(home); !errors.As(err, &auth.TooSoonError{}) {
			t.Errorf("the sixth attempt from a device: %v", err)
		}
	})
	t.Run("until the password changes", func(t *testing.T) {
		w.exec(t, "DELETE FROM login_failure")
		fresh := w.newGate(w.store, auth.Options{})
		session := must(fresh.SignIn(ctx, adaEmail, adaPassword, laptop()))(t).Session
		next := must(fresh.ChangePassword(ctx, session, adaPassword, "a finer difference engine", laptop()))(t).Device
		guess(t, fresh, adaEmail, 20)
		for device, known := range map[string]bool{home.Device: false, next: true} {
			_, err := fresh.SignIn(ctx, adaEmail, "a finer difference engine", auth.Browser{Device: device})
			if known != (err == nil) {
				t.Errorf("a device is known: %t, but %v", known, err)
			}
		}
	})
}

func counterBytes(email string) []byte {
	counter := auth.AddressCounter(email)
	return counter[:]
}

func TestAThiefOfASessionCannotGuessThePassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	for range auth.FreeAttempts {
		_, err := w.ChangePassword(t.Context(), entry.Session, "guess", "a finer difference engine", laptop())
		wantError(t, err, auth.ErrWrongPassword)
	}
	_, err := w.ChangePassword(t.Context(), entry.Session, adaPassword, "a finer difference engine", laptop())
	if !errors.As(err, &auth.TooSoonError{}) {
		t.Errorf("the sixth attempt: %v", err)
	}
}

// countingStore counts the attempts that reach the database.
type countingStore struct {
	auth.Store
	attempts atomic.Int64
}

func (s *countingStore) Attempt(ctx context.Context, counter auth.Counter) (time.Duration, error) {
	s.attempts.Add(1)
	return s.Store.Attempt(ctx, counter)
}

func TestAFloodOfGuessesIsNotCountedInTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	w.exec(t, "INSERT INTO login_failure VALUES ($1, 100, now())", counterBytes(adaEmail))
	now := time.Now()
	store := &countingStore{Store: w.store}
	gate := w.newGate(store, auth.Options{Now: func() time.Time { return now }})
	for range 50 {
		if looked, _ := guess(t, gate, adaEmail, 1); looked > 0 {
			t.Fatal("a guess is looked at")
		}
	}
	if n := store.attempts.Load(); n != 1 {
		t.Errorf("%d of 50 refused guesses reach the database, want 1", n)
	}
	now = now.Add(time.Minute)
	w.exec(t, "UPDATE login_failure SET last_at = now() - interval '1 minute'")
	if looked, _ := guess(t, gate, adaEmail, 1); looked != 1 {
		t.Error("after the wait a guess is not looked at")
	}
}

// waitingStore makes everybody wait.
type waitingStore struct{ auth.Store }

func (waitingStore) Attempt(context.Context, auth.Counter) (time.Duration, error) {
	return time.Minute, nil
}

func TestRememberedWaitsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	gate := w.newGate(waitingStore{w.store}, auth.Options{})
	for i := range 10_050 {
		_, err := gate.SignIn(t.Context(), fmt.Sprintf("%d@example.com", i), "guess", auth.Browser{})
		if !errors.As(err, &auth.TooSoonError{}) {
			t.Fatal(err)
		}
	}
	if n := gate.RememberedWaits(); n > 10_000 || n == 0 {
		t.Errorf("%d waits are remembered", n)
	}
}
