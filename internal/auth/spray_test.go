package auth_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

// spray returns how many tries of one password at many addresses were checked.
func spray(t *testing.T, gate *auth.Gate, network string, tries int) (looked int) {
	t.Helper()
	base := netip.MustParsePrefix(network).Addr().As16()
	for i := range tries {
		base[15] = byte(i)
		_, err := gate.SignIn(t.Context(), fmt.Sprintf("%s-%d@example.com", network, i), "Summer2026",
			auth.Browser{IP: netip.AddrFrom16(base)})
		var tooSoon auth.TooSoonError
		switch {
		case errors.As(err, &tooSoon):
			if tooSoon.Wait <= 0 || tooSoon.Wait > 6*time.Second {
				t.Fatalf("it has to wait for %v", tooSoon.Wait)
			}
		case errors.Is(err, auth.ErrWrongPassword):
			looked++
		default:
			t.Fatal(err)
		}
	}
	return looked
}

func TestOnePasswordAtManyAddressesIsSlowedByNetwork(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	start := time.Now()
	w := newStillWorld(t, auth.Options{Now: func() time.Time { return start.Add(time.Duration(ahead.Load())) }})
	known := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t) // at 203.0.113.9
	for _, network := range []string{"203.0.113.0/24", "2001:db8:7::/48"} {
		if looked := spray(t, w.Gate, network, 100); looked != 60 {
			t.Errorf("%s: %d of 100 guesses are looked at, want 60", network, looked)
		}
	}
	_, err := w.SignIn(t.Context(), adaEmail, adaPassword, laptop())
	if !errors.As(err, &auth.TooSoonError{}) {
		t.Errorf("a new browser in that network is told %v", err)
	}
	usual := laptop()
	usual.Device = known.Device
	must(w.SignIn(t.Context(), adaEmail, adaPassword, usual))(t)
	elsewhere := laptop()
	elsewhere.IP = netip.MustParseAddr("203.0.112.9")
	must(w.SignIn(t.Context(), adaEmail, adaPassword, elsewhere))(t)
	ahead.Store(int64(time.Minute))
	if looked := spray(t, w.Gate, "203.0.113.0/24", 20); looked != 10 {
		t.Errorf("a minute later %d guesses are looked at, want 10", looked)
	}
}

// A stranger who claimed an address by a link has a device of that account.
func TestADeviceExemptsOnlyItsOwnAccountFromTheLimitOfANetwork(t *testing.T) {
	t.Parallel()
	start := time.Now()
	w := newStillWorld(t, auth.Options{Now: func() time.Time { return start }})
	claimed := w.claim(t)
	stranger := laptopAt("acme")
	stranger.Device = must(w.SignIn(t.Context(), adaEmail, claimed, laptopAt("acme")))(t).Device
	owner := laptopAt("acme")
	owner.Device = must(w.SignIn(t.Context(), adaEmail, adaPassword, laptopAt("acme")))(t).Device
	spray(t, w.Gate, "203.0.113.0/24", 60)
	w.hashes.Store(0)
	for _, guess := range []string{"Summer2026", adaPassword} {
		if _, err := w.SignIn(t.Context(), adaEmail, guess, stranger); !errors.As(err, &auth.TooSoonError{}) {
			t.Errorf("the guess %q is answered %v, want a wait", guess, err)
		}
	}
	if hashes := w.hashes.Load(); hashes != 2 {
		t.Errorf("%d passwords are compared, want 2, of the stranger's own account", hashes)
	}
	must(w.SignIn(t.Context(), adaEmail, claimed, stranger))(t)
	must(w.SignIn(t.Context(), adaEmail, adaPassword, owner))(t)
}

func TestRememberedSpraysAreBounded(t *testing.T) {
	t.Parallel()
	gate := auth.NewGate(nil, auth.Options{})
	for i := range 25_000 {
		gate.NoteSpray(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}))
	}
	if n := gate.RememberedSprays(); n > 10_000 || n == 0 {
		t.Errorf("%d networks are remembered", n)
	}
}
