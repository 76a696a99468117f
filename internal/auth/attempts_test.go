package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestWaitsDoubleUpToTheLongest(t *testing.T) {
	t.Parallel()
	for pace, waits := range map[auth.Pace]map[int]time.Duration{
		auth.Tight: {
			0: 0, 4: 0, 5: time.Second, 6: 2 * time.Second, 10: 32 * time.Second, 11: time.Minute,
			1 << 40: time.Minute,
		},
		auth.Loose: {
			0: 0, 99: 0, 100: time.Second, 101: 2 * time.Second, 102: 4 * time.Second,
			1 << 40: 4 * time.Second,
		},
	} {
		for failures, want := range waits {
			if got := pace.WaitAfter(failures); got != want {
				t.Errorf("%+v: after %d failures the wait is %s, want %s", pace, failures, got, want)
			}
		}
	}
}

func TestWhatOneCustomerHasIsOneNetwork(t *testing.T) {
	t.Parallel()
	for ip, want := range map[string]string{
		"203.0.113.9": "203.0.113.9/32", "::ffff:203.0.113.9": "203.0.113.9/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := auth.NetworkOf(netip.MustParseAddr(ip)).String(); got != want {
			t.Errorf("%s is of %s, want %s", ip, got, want)
		}
	}
	if got := auth.NetworkOf(netip.Addr{}).String(); got != "::/64" {
		t.Errorf("no address is of %s", got)
	}
}

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
	w := newStillWorld(t, auth.Options{})
	for _, email := range []string{adaEmail, "nobody@example.com"} {
		looked, wait := guess(t, w.Gate, email, 20)
		if looked != auth.Tight.Free || wait <= 0 || wait > time.Second {
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
	w := newStillWorld(t, auth.Options{})
	tight := auth.AddressLimits(adaEmail, laptop().IP)[1:]
	pass := func(interval string) {
		w.exec(t, "UPDATE sign_in_attempt SET last_at = last_at - $1::interval", interval)
	}
	attempt := func() time.Duration {
		_, wait, err := w.store.Attempt(t.Context(), tight)
		return must(wait, err)(t)
	}
	for range auth.Tight.Free {
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
	for range auth.Tight.Free {
		if wait := attempt(); wait != 0 {
			t.Errorf("after a day the wait is %s", wait)
		}
	}
}

func TestASuccessForgetsFailures(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	guess(t, w.Gate, adaEmail, auth.Tight.Free-1)
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	if looked, _ := guess(t, w.Gate, adaEmail, 20); looked != auth.Tight.Free {
		t.Errorf("%d guesses are free after a success, want %d", looked, auth.Tight.Free)
	}
}

func TestOldFailuresAreCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	w.exec(t, "INSERT INTO sign_in_attempt SELECT sha256(n::text::bytea), '::/64', 1, now() - interval '25 hours' "+
		"FROM generate_series(1, 25) AS n")
	for range 3 {
		_, _ = w.SignIn(t.Context(), adaEmail, "guess", laptop())
	}
	if n := w.count(t, "SELECT count(*) FROM sign_in_attempt"); n != 2 {
		t.Errorf("%d counters are left, want ada's 2", n)
	}
}

func TestParallelGuessesDoNotPassTogether(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	for range auth.Tight.Free {
		_, _ = w.SignIn(t.Context(), adaEmail, "guess", auth.Browser{})
	}
	w.exec(t, "UPDATE sign_in_attempt SET attempts = 20") // no second wait may end during the test
	for round := range 4 {
		w.exec(t, "UPDATE sign_in_attempt SET last_at = clock_timestamp() - interval '59 seconds' - $1 * interval '2 "+
			"seconds'", round%2)
		gates := []*auth.Gate{w.newGate(w.store, auth.Options{}), w.newGate(w.store, auth.Options{})}
		before := w.hashes.Load()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				_, err := gates[i%2].SignIn(t.Context(), adaEmail, "guess", auth.Browser{})
				if !errors.Is(err, auth.ErrWrongPassword) && !errors.Is(err, auth.ErrBusy) &&
					!errors.As(err, &auth.TooSoonError{}) {
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

func network(n int) auth.Browser {
	return auth.Browser{IP: netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n), 15: 1})}
}

func TestANewBrowserIsNotKeptOutByGuessesFromAnotherNetwork(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	for range auth.Tight.Free {
		_, err := w.SignIn(t.Context(), adaEmail, "guess", network(0))
		wantError(t, err, auth.ErrWrongPassword)
	}
	w.exec(t, "UPDATE sign_in_attempt SET attempts = 1000, last_at = clock_timestamp() WHERE network <> '0.0.0.0/0'")
	for _, gate := range []*auth.Gate{w.Gate, w.newGate(w.store, auth.Options{})} {
		for range auth.Loose.Free {
			if _, err := gate.SignIn(t.Context(), adaEmail, "guess", network(0)); !errors.As(err,
				&auth.TooSoonError{}) {
				t.Fatalf("a guess is answered by %v", err)
			}
		}
		if n := w.count(t, "SELECT attempts FROM sign_in_attempt WHERE network = '0.0.0.0/0'"); n != auth.Tight.Free {
			t.Errorf("guesses that are not looked at are counted: there are %d", n)
		}
	}
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
}

func TestGuessesFromManyNetworksAreSlowed(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	for n := range auth.Loose.Free {
		_, err := w.SignIn(t.Context(), adaEmail, "guess", network(n))
		wantError(t, err, auth.ErrWrongPassword)
	}
	w.exec(t, "UPDATE sign_in_attempt SET attempts = 1000 WHERE network = '0.0.0.0/0'")
	for _, ago := range []time.Duration{0, auth.Loose.Longest} {
		w.exec(t, "UPDATE sign_in_attempt SET last_at = clock_timestamp() - $1::interval", ago)
		var counted atomic.Int64
		var all sync.WaitGroup
		for guesser := range 10 { // a hundred at once would wait for each other longer than a query's timeout
			all.Go(func() {
				for n := range 10 {
					// The gate asks this before it checks a password, without the bound of the hasher.
					_, wait, err := w.store.Attempt(t.Context(),
						auth.AddressLimits(adaEmail, network(1000+10*guesser+n).IP))
					if err != nil || wait > auth.Loose.Longest {
						t.Errorf("the wait is %s, error %v", wait, err)
					}
					if wait == 0 {
						counted.Add(1)
					}
				}
			})
		}
		all.Wait()
		if got, want := counted.Load(), int64(min(ago, 1)); got != want {
			t.Errorf("%s after the last one %d of 100 parallel guesses may be looked at, want %d", ago, got, want)
		}
		if n := w.count(t, "SELECT count(*) FROM sign_in_attempt"); n != auth.Loose.Free+1+int(min(ago, 1)) {
			t.Errorf("%d counters: networks that must wait are counted", n)
		}
	}
	_, err := w.SignIn(t.Context(), adaEmail, adaPassword, laptop())
	var tooSoon auth.TooSoonError
	if !errors.As(err, &tooSoon) || tooSoon.Wait > auth.Loose.Longest {
		t.Errorf("in between a new browser is told %v", err)
	}
	must(w.CreateAdmin(t.Context(), rules.Actor{}, adaEmail, adaPassword))(t)
	if n := w.count(t, "SELECT count(*) FROM sign_in_attempt"); n != 0 {
		t.Errorf("create-admin leaves %d counters", n)
	}
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
}

func TestForgettingDoesNotWaitForAttemptsInACircle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	subject := auth.AddressLimits(adaEmail, netip.Addr{})[0].Subject
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for range 30 {
				if _, _, err := w.store.Attempt(t.Context(), auth.AddressLimits(adaEmail, network(n).IP)); err != nil {
					t.Error(err)
				}
				if n%4 > 0 {
					continue
				}
				if err := w.store.ForgetAttempts(t.Context(), subject); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestAKnownDeviceIsNotKeptOutByOthersGuesses(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	ctx := t.Context()
	_, evil := w.join(t, "eve@example.com", auth.Viewer)
	home := auth.Browser{Device: must(w.SignIn(ctx, adaEmail, adaPassword, laptop()))(t).Device}
	flood := func() {
		w.exec(t, "UPDATE sign_in_attempt SET attempts = 100, last_at = clock_timestamp()")
		guess(t, w.Gate, adaEmail, 6)
		w.exec(t, "UPDATE sign_in_attempt SET attempts = 100, last_at = clock_timestamp() WHERE subject = $1",
			subjectBytes(adaEmail))
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
	for name, device := range map[string]string{
		"none": "", "another account's": evil.Device,
		"a damaged": string(damaged), "an empty": "AAAA",
	} {
		if err := signIn(auth.Browser{Device: device}); !errors.As(err, &auth.TooSoonError{}) {
			t.Errorf("with %s device token: %v", name, err)
		}
	}
	t.Run("which has its own limit", func(t *testing.T) {
		for range auth.Tight.Free {
			_, err := w.SignIn(ctx, adaEmail, "guess", home)
			wantError(t, err, auth.ErrWrongPassword)
		}
		if err := signIn(home); !errors.As(err, &auth.TooSoonError{}) {
			t.Errorf("the sixth attempt from a device: %v", err)
		}
	})
	t.Run("until the password changes", func(t *testing.T) {
		w.exec(t, "DELETE FROM sign_in_attempt")
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

func subjectBytes(email string) []byte {
	subject := auth.AddressLimits(email, netip.Addr{})[0].Subject
	return subject[:]
}

func TestAThiefOfASessionCannotGuessThePassword(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	for range auth.Tight.Free {
		_, err := w.ChangePassword(t.Context(), entry.Session, "guess", "a finer difference engine", laptop())
		wantError(t, err, auth.ErrWrongPassword)
	}
	_, err := w.ChangePassword(t.Context(), entry.Session, adaPassword, "a finer difference engine", laptop())
	if !errors.As(err, &auth.TooSoonError{}) {
		t.Errorf("the sixth attempt: %v", err)
	}
}

type countingStore struct {
	auth.Store
	attempts atomic.Int64
}

func (s *countingStore) Attempt(ctx context.Context, limits []auth.Limit) (auth.Counter, time.Duration, error) {
	s.attempts.Add(1)
	return s.Store.Attempt(ctx, limits)
}

func TestAFloodOfGuessesIsNotCountedInTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	w.exec(t, "INSERT INTO sign_in_attempt VALUES ($1, '::/64', 100, now())", subjectBytes(adaEmail))
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
	w.exec(t, "UPDATE sign_in_attempt SET last_at = now() - interval '1 minute'")
	if looked, _ := guess(t, gate, adaEmail, 1); looked != 1 {
		t.Error("after the wait a guess is not looked at")
	}
}

type waitingStore struct{ auth.Store }

func (waitingStore) Attempt(_ context.Context, limits []auth.Limit) (auth.Counter, time.Duration, error) {
	return limits[0].Counter, time.Minute, nil
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
