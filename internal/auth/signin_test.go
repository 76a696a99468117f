package auth_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestASignInOpensASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	entry := must(w.SignIn(t.Context(), "aDA@EXAMPLE.com", adaPassword, laptop()))(t)
	session := must(w.Authenticate(t.Context(), entry.Token))(t)
	if session.Account != w.ada || session.ID != entry.Session.ID {
		t.Errorf("the token is of %+v, want %+v", session, entry.Session)
	}
	if session.UserAgent != "Lynx/2.8" || session.IP.String() != "203.0.113.9" {
		t.Errorf("the session came from %q at %s", session.UserAgent, session.IP)
	}
	for _, token := range []string{"", "x", entry.Token + "x", strings.Repeat("A", len(entry.Token)), entry.Device} {
		_, err := w.Authenticate(t.Context(), token)
		wantError(t, err, auth.ErrSignedOut)
	}
}

func TestWhoMayNotComeInCannotTellWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	disabled, _ := w.join(t, "gone@example.com", auth.Viewer)
	disabled.Account.DisabledAt = time.Now()
	must(w.store.UpdateAccount(t.Context(), w.ada.Actor(), disabled.Account))(t)
	tests := map[string]struct {
		email, password string
		hashes          int64
	}{
		"an unknown address":           {"nobody@example.com", adaPassword, 1},
		"an address with a NUL":        {"a\x00b@example.com", adaPassword, 1},
		"a wrong password":             {adaEmail, "not " + adaPassword, 1},
		"an empty password":            {adaEmail, "", 1},
		"the password in capitals":     {adaEmail, strings.ToUpper(adaPassword), 1},
		"a space after the password":   {adaEmail, adaPassword + " ", 1},
		"the password without its end": {adaEmail, adaPassword[:len(adaPassword)-1], 1},
		"a disabled account":           {"gone@example.com", adaPassword, 1},
		"a password longer than any":   {adaEmail, strings.Repeat("x", 513), 0},
		"an address longer than any":   {strings.Repeat("x", 250) + "@example.com", adaPassword, 0},
		"a letter that folds to ASCII": {"ada@example.com" + "\u212a", adaPassword, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := w.hashes.Load()
			_, err := w.SignIn(t.Context(), test.email, test.password, laptop())
			wantError(t, err, auth.ErrWrongPassword)
			if runs := w.hashes.Load() - before; runs != test.hashes {
				t.Errorf("argon2 ran %d times, want %d", runs, test.hashes)
			}
		})
	}
}

func TestASignInEndsTheSessionThatTheBrowserHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	planted := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	elsewhere := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	from := laptop()
	from.Session = planted.Token
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, from))(t)
	if entry.Token == planted.Token {
		t.Error("the token is the one that the browser had")
	}
	_, err := w.Authenticate(t.Context(), planted.Token)
	wantError(t, err, auth.ErrSignedOut)
	must(w.Authenticate(t.Context(), elsewhere.Token))(t)
	if sessions := must(w.Sessions(t.Context(), w.ada.ID))(t); len(sessions) != 2 ||
		sessions[0].ID != entry.Session.ID {
		t.Errorf("the sessions are %+v, want 2, the latest first", sessions)
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	after := func(d time.Duration) auth.Options {
		return auth.Options{Now: func() time.Time { return time.Now().Add(d) }}
	}
	tests := map[string]struct {
		do   func(*testing.T, *world, auth.Session)
		then auth.Options
		ends bool
	}{
		"not by themselves within a day": {then: after(23*time.Hour + 50*time.Minute)},
		"when idle for a day":            {then: after(24*time.Hour + time.Minute), ends: true},
		"after a week, used or not": {do: func(t *testing.T, w *world, _ auth.Session) {
			w.exec(t, "UPDATE session SET last_seen_at = now() + interval '6 days 23 hours'")
		}, then: after(7*24*time.Hour + time.Minute), ends: true},
		"not before a week if they are used": {do: func(t *testing.T, w *world, _ auth.Session) {
			w.exec(t, "UPDATE session SET last_seen_at = now() + interval '6 days 23 hours'")
		}, then: after(7*24*time.Hour - 10*time.Minute)},
		"by signing out": {do: func(t *testing.T, w *world, s auth.Session) {
			for range 2 { // the second changes nothing
				if err := w.SignOut(t.Context(), s); err != nil {
					t.Error(err)
				}
			}
		}, ends: true},
		"by signing out everywhere": {do: func(t *testing.T, w *world, s auth.Session) {
			if ended := must(w.store.EndSessions(t.Context(), s.Account.ID))(t); ended != 1 {
				t.Errorf("%d sessions were ended", ended)
			}
		}, ends: true},
		"when the account is disabled, for good": {do: func(t *testing.T, w *world, s auth.Session) {
			other, _ := w.join(t, "bob@example.com", auth.Owner)
			other.Account.PlatformAdmin = true
			must(w.store.UpdateAccount(t.Context(), w.ada.Actor(), other.Account))(t)
			s.Account.DisabledAt = time.Now()
			disabled := must(w.store.UpdateAccount(t.Context(), w.ada.Actor(), s.Account))(t)
			disabled.DisabledAt = time.Time{}
			must(w.store.UpdateAccount(t.Context(), w.ada.Actor(), disabled))(t)
		}, ends: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, auth.Options{})
			entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
			if test.do != nil {
				test.do(t, w, entry.Session)
			}
			later := w.newGate(w.store, test.then)
			_, err := later.Authenticate(t.Context(), entry.Token)
			listed := len(must(later.Sessions(t.Context(), w.ada.ID))(t))
			if test.ends != errors.Is(err, auth.ErrSignedOut) || test.ends != (listed == 0) {
				t.Errorf("the session is %v, and %d are listed", err, listed)
			}
		})
	}
}

func TestASessionIsNotedAsSeenOnceAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	seen := func() time.Time { return must(w.Authenticate(t.Context(), entry.Token))(t).LastSeenAt }
	atFirst := seen()
	if again := seen(); !again.Equal(atFirst) {
		t.Errorf("a session just seen is noted again, at %s", again)
	}
	w.exec(t, "UPDATE session SET last_seen_at = last_seen_at - interval '2 minutes'")
	old := seen() // and noted
	if noted := seen(); !noted.After(old) {
		t.Error("a session seen two minutes after the last time is not noted")
	}
	if !w.isSeenWhileLocked(t, entry) {
		t.Error("a request waits for another one that notes")
	}
}

func (w *world) isSeenWhileLocked(t *testing.T, entry auth.Entry) bool {
	t.Helper()
	w.exec(t, "UPDATE session SET last_seen_at = last_seen_at - interval '2 minutes'")
	connection := connect(t, w.url)
	tx := must(connection.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "UPDATE session SET last_seen_at = now()"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := w.Authenticate(ctx, entry.Token)
	return err == nil && ctx.Err() == nil
}

func TestAPasswordChangeEndsAllSessionsForANewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	here := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	there := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	const next = "a finer difference engine"
	_, err := w.ChangePassword(t.Context(), here.Session, "wrong", next, laptop())
	wantError(t, err, auth.ErrWrongPassword)
	_, err = w.ChangePassword(t.Context(), here.Session, adaPassword, "short", laptop())
	wantFields(t, err, "new_password")
	must(w.Authenticate(t.Context(), there.Token))(t)

	renewed := must(w.ChangePassword(t.Context(), here.Session, adaPassword, next, laptop()))(t)
	must(w.Authenticate(t.Context(), renewed.Token))(t)
	for _, token := range []string{here.Token, there.Token} { // a thief may have a copy of this session's token
		_, err = w.Authenticate(t.Context(), token)
		wantError(t, err, auth.ErrSignedOut)
	}
	_, err = w.SignIn(t.Context(), adaEmail, adaPassword, laptop())
	wantError(t, err, auth.ErrWrongPassword)
	must(w.SignIn(t.Context(), adaEmail, next, laptop()))(t)
}

func TestAPasswordIsHashedAnewWhenTheCostWasRaised(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	hash := func() string {
		_, hash, err := w.store.PasswordOf(t.Context(), adaEmail, "")
		return must(hash, err)(t)
	}
	before := hash()
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	if hash() != before {
		t.Error("a hash of the present cost is replaced")
	}
	w.RaiseCost()
	first := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	after := hash()
	if err := auth.CheckHash(after); after == before || err != nil || strings.Contains(after, "t=1,") {
		t.Errorf("the hash is %s: %v", after, err)
	}
	must(w.Authenticate(t.Context(), first.Token))(t)
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	if hash() != after {
		t.Error("it is replaced again")
	}
}

func TestTheDatabaseHoldsNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	token := w.invite(t, "eve@example.com", auth.Viewer)
	_, _ = w.SignIn(t.Context(), "my password is hunter2hunter2", "x", laptop())
	for _, secret := range []string{adaPassword, entry.Token, entry.Device, token, "hunter2"} {
		for _, table := range []string{"account", "session", "invitation", "sign_in_attempt"} {
			n := w.count(t, "SELECT count(*) FROM "+table+" AS r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, "+
				"$2) > 0",
				secret, hex.EncodeToString([]byte(secret)))
			if n > 0 {
				t.Errorf("%q stands in %s", secret, table)
			}
		}
	}
}

func TestCreateAdminIsTheWayBackIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	member, entry := w.join(t, "bob@example.com", auth.Viewer)
	member.Account.DisabledAt = time.Now()
	must(w.store.UpdateAccount(ctx, w.ada.Actor(), member.Account))(t)
	commands := w.newGate(w.store, auth.Options{Mail: true})
	for range auth.Tight.Free + 1 {
		_, _ = commands.SignIn(ctx, "bob@example.com", "guess", laptop())
	}
	const next = "a finer difference engine"
	admin := must(commands.CreateAdmin(ctx, rules.Actor{}, "BOB@example.com", next))(t)
	if admin.ID != member.Account.ID || !admin.PlatformAdmin || !admin.DisabledAt.IsZero() {
		t.Errorf("the admin is %+v, want account %d", admin, member.Account.ID)
	}
	if told := w.count(t, "SELECT count(*) FROM mail WHERE recipient = 'bob@example.com' AND facts->>'notice' = "+
		"'password_changed'"); told != 1 {
		t.Errorf("the account was told %d times", told)
	}
	must(commands.SignIn(ctx, "bob@example.com", next, laptop()))(t)
	_, err := w.Authenticate(ctx, entry.Token)
	wantError(t, err, auth.ErrSignedOut)
	_, err = w.CreateAdmin(ctx, rules.Actor{}, "bob", "short")
	wantFields(t, err, "email", "password")
}

func TestSettingAPasswordGivesNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	member, entry := w.join(t, "bob@example.com", auth.Viewer)
	commands := w.newGate(w.store, auth.Options{Mail: true})
	for range auth.Tight.Free + 1 {
		_, _ = commands.SignIn(ctx, "bob@example.com", "guess", laptop())
	}
	const next = "a finer difference engine"
	by := rules.Actor{Kind: rules.ActorCommand, Name: "set-password by alice"}
	if account := must(commands.SetPassword(ctx, by, "BOB@example.com", next))(t); account != member.Account {
		t.Errorf("the account is %+v, want %+v", account, member.Account)
	}
	_, err := w.Authenticate(ctx, entry.Token)
	wantError(t, err, auth.ErrSignedOut)
	if again := must(commands.SignIn(ctx, "bob@example.com", next, laptop()))(t); again.Session.Account.PlatformAdmin {
		t.Error("who got a password is a platform admin")
	}
	if n := w.count(t, `SELECT count(*) FROM platform_audit_event
		WHERE object_id = $1 AND actor_name = $2 AND after ? 'password_hash_changed'`, fmt.Sprint(member.Account.ID),
		by.Name); n != 1 {
		t.Errorf("the log has it %d times", n)
	}
	if told := w.count(t, "SELECT count(*) FROM mail WHERE recipient = 'bob@example.com' AND facts->>'notice' = "+
		"'password_changed'"); told != 1 {
		t.Errorf("the account was told %d times", told)
	}
	_, err = commands.SetPassword(ctx, by, "eve@example.com", next)
	wantError(t, err, rules.ErrNotFound)
	_, err = commands.SetPassword(ctx, by, "bob@example.com", "short")
	wantFields(t, err, "password")

	member.Account.DisabledAt = time.Now()
	must(w.store.UpdateAccount(ctx, w.ada.Actor(), member.Account))(t)
	if account := must(commands.SetPassword(ctx, by, "bob@example.com",
		"the finest difference engine"))(t); account.DisabledAt.IsZero() {
		t.Error("an account that was disabled is enabled")
	}
}

func TestADatabaseThatIsAwayIsNotAWrongPassword(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	w.store.Close()
	_, err := w.SignIn(t.Context(), adaEmail, adaPassword, laptop())
	if err == nil || errors.Is(err, auth.ErrWrongPassword) || errors.Is(err, rules.ErrNotFound) {
		t.Errorf("signing in answers %v", err)
	}
	_, err = w.Authenticate(t.Context(), strings.Repeat("A", 43))
	if err == nil || errors.Is(err, auth.ErrSignedOut) {
		t.Errorf("authenticating answers %v", err)
	}
}
