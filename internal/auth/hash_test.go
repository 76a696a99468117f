package auth_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestHashingIsBounded(t *testing.T) {
	t.Parallel()
	const signIns, slots, waiting = 64, 3, 16
	w := newWorld(t, auth.Options{})
	home := auth.Browser{Device: must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t).Device}
	gate := auth.NewGate(w.store, auth.Options{Hashes: slots})
	var running, peak, runs, busy atomic.Int64
	full, held := make(chan struct{}), make(chan struct{})
	gate.WatchHashes(func() {
		now := running.Add(1)
		defer running.Add(-1)
		for most := peak.Load(); now > most && !peak.CompareAndSwap(most, now); most = peak.Load() {
		}
		if n := runs.Add(1); n == slots {
			close(full)
		} else if n == slots+1 {
			return // the known device's
		}
		<-held
	})
	var all, turnedAway sync.WaitGroup
	turnedAway.Add(signIns - slots - waiting)
	for i := range signIns {
		all.Go(func() {
			_, err := gate.SignIn(t.Context(), fmt.Sprintf("%d@example.com", i), "guess", auth.Browser{})
			if errors.Is(err, auth.ErrBusy) {
				busy.Add(1)
				turnedAway.Done()
				return
			}
			wantError(t, err, auth.ErrWrongPassword)
		})
	}
	<-full
	turnedAway.Wait()
	must(gate.SignIn(t.Context(), adaEmail, adaPassword, home))(t)
	if n := w.count(t, "SELECT count(DISTINCT subject) FROM sign_in_attempt"); n != slots {
		t.Errorf("%d attempts are counted while %d are looked at", n, slots)
	}
	close(held)
	all.Wait()
	if peak.Load() != slots+1 || runs.Load() != slots+waiting+1 || busy.Load() != signIns-slots-waiting {
		t.Errorf("%d hashes ran, at most %d at once, and %d were turned away", runs.Load(), peak.Load(), busy.Load())
	}
}

func TestHashesCarryTheirCost(t *testing.T) {
	t.Parallel()
	hash := auth.HashPassword("sluice-demo")
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("the hash is %s", hash)
	}
	if hash == auth.HashPassword("sluice-demo") {
		t.Error("two hashes of one password are the same")
	}
	w := newWorld(t, auth.Options{})
	must(w.store.CreateAccount(t.Context(), w.ada.Actor(), auth.Account{Email: "demo@example.com"}, hash))(t)
	must(w.SignIn(t.Context(), "demo@example.com", "sluice-demo", auth.Browser{}))(t)
}

func TestDamagedHashesAreRefused(t *testing.T) {
	t.Parallel()
	const good = "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	if err := auth.CheckHash(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"no hash at all":           {good, ""},
		"another algorithm":        {"argon2id", "argon2i"},
		"another version":          {"v=19", "v=16"},
		"all of the memory":        {"m=8", "m=4294967295"},
		"no pass over it":          {"t=1", "t=0"},
		"a day of passes":          {"t=1", "t=4000000000"},
		"no lane":                  {"p=1", "p=0"},
		"a number that is none":    {"m=8", "m=x"},
		"a salt that is none":      {"$AAAAAAAAAAAAAAAAAAAAAA$", "$!$"},
		"a hash that is too short": {"$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "$AAAA"},
	} {
		if auth.CheckHash(strings.Replace(good, change[0], change[1], 1)) == nil {
			t.Errorf("%s: is accepted", name)
		}
	}
}

func TestPasswordsThatAreGuessedFirstAreRefused(t *testing.T) {
	t.Parallel()
	for password, refused := range map[string]bool{
		"ninechars":                        true,
		"tenletters":                       false,
		"zehn wörter":                      false,
		"ééééééééé":                        true, // nine, in eighteen bytes
		strings.Repeat("long", 32):         false,
		strings.Repeat("long", 32) + "r":   true,
		strings.Repeat("\U0001f511ab", 42): false, // 126 characters, 252 bytes
		"ada.lovelace@example.com":         true,
		"ADA.LOVELACE@example.com":         true,
		"ada.lovelace":                     true,
		"ada.lovelace was first":           false,
		"Password123":                      true,
		"1234567890":                       true,
		"aaaaaaaaaaaa":                     true,
		"AaAaAaAaAaAa":                     true,
		"correct horse battery staple":     false,
		"Sluice2026!":                      true, // words that a guesser takes from the context
		"sluice-admin-1":                   true,
		"Ratelimit#42":                     true,
		"example2026":                      true,
		"L0velace.Lovelace":                false, // l and velace are not such words
		"lovelace_ada_1815":                true,
		"admin password":                   true,
		"sluice gates open":                false,
		"20260101!!":                       false, // no letters, so no words
		"com2026com2026":                   false,
	} {
		if wrong := auth.WrongPassword("password", password, "Ada.Lovelace@example.com"); refused != (wrong != nil) {
			t.Errorf("%.40q: %v", password, wrong)
		}
	}
}

func TestAccountsAreJudged(t *testing.T) {
	t.Parallel()
	for account, valid := range map[auth.Account]bool{
		{Email: "ada@example.com"}:                                 true,
		{Email: "ada+sluice@sub.example.com", Name: "Ada L."}:      true,
		{Email: "jürgen@exämple.de"}:                               true,
		{Email: ""}:                                                false,
		{Email: "ada"}:                                             false,
		{Email: "Ada <ada@example.com>"}:                           false,
		{Email: "<ada@example.com>"}:                               false,
		{Email: "ada@example.com (home)"}:                          false,
		{Email: `"a b"@example.com`}:                               false,
		{Email: "ada@example.com "}:                                false,
		{Email: "ada@example.com\n"}:                               false,
		{Email: "a\u200bda@example.com"}:                           false,
		{Email: "a\x00b@example.com"}:                              false,
		{Email: "a@b@example.com"}:                                 false,
		{Email: strings.Repeat("x", 250) + "@example.com"}:         false,
		{Email: "ada@example.com", Name: "two\nlines"}:             false,
		{Email: "ada@example.com", Name: strings.Repeat("x", 101)}: false,
		{Email: "ada@example.com", Name: "bad\xff"}:                false,
	} {
		if wrong := account.Validate(); valid != (len(wrong) == 0) {
			t.Errorf("%q, %.20q: %v", account.Email, account.Name, wrong)
		}
	}
}

func TestRolesMayWhatLesserRolesMay(t *testing.T) {
	t.Parallel()
	order := []auth.Role{"", auth.Viewer, auth.Editor, auth.Owner}
	for i, role := range order {
		for j, least := range order[1:] {
			if got, want := role.May(least), i >= j+1; got != want {
				t.Errorf("%q may what %q may: %t", role, least, got)
			}
		}
	}
	if auth.Role("root").May(auth.Viewer) || len(auth.Role("root").Validate()) != 1 {
		t.Error("a role that does not exist may something")
	}
}
