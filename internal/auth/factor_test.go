package auth_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func newKey(t *testing.T) string {
	t.Helper()
	var key [auth.SecretKeyBytes]byte
	_, _ = rand.Read(key[:])
	return base64.StdEncoding.EncodeToString(key[:])
}

type clock struct {
	sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.now = c.now.Add(d)
}

type app struct {
	secret string
	clock  *clock
}

func (a app) code(t *testing.T, after time.Duration) string {
	t.Helper()
	return must(totp.GenerateCode(a.secret, a.clock.Now().Add(after)))(t)
}

func enrolled(t *testing.T, options auth.Options) (*world, app, auth.Entry, []string) {
	t.Helper()
	c := newClock()
	options.Now = c.Now
	if !options.Vault.HasKey() {
		options.Vault = must(auth.NewVault(newKey(t)))(t)
	}
	w := newStillWorld(t, options)
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	enrolment := must(w.BeginSecondFactor(t.Context(), entry.Session))(t)
	a := app{enrolment.Secret, c}
	codes := must(w.TurnSecondFactorOn(t.Context(), w.ada.Actor(), entry.Session, a.code(t, 0), laptop()))(t)
	c.advance(time.Minute) // the next code must differ from the used one
	return w, a, entry, codes
}

func (w *world) firstStep(t *testing.T) (token string) {
	t.Helper()
	_, err := w.SignIn(t.Context(), adaEmail, adaPassword, laptop())
	var pending auth.SecondFactorError
	if !errors.As(err, &pending) {
		t.Fatalf("the first step ends with %v", err)
	}
	return pending.Token
}

func TestASecondFactorCountsOnceACodeIsShown(t *testing.T) {
	t.Parallel()
	c := newClock()
	w := newWorld(t, auth.Options{Now: c.Now, Vault: must(auth.NewVault(newKey(t)))(t)})
	entry := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	elsewhere := must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	_, err := w.TurnSecondFactorOn(t.Context(), w.ada.Actor(), entry.Session, "123456", laptop())
	wantError(t, err, rules.ErrNotFound) // it was not begun

	former := must(w.BeginSecondFactor(t.Context(), entry.Session))(t)
	enrolment := must(w.BeginSecondFactor(t.Context(), entry.Session))(t)
	uri := must(url.Parse(enrolment.URI))(t)
	if uri.Scheme != "otpauth" || uri.Host != "totp" || uri.Query().Get("secret") != enrolment.Secret ||
		!strings.Contains(uri.Path, adaEmail) {
		t.Errorf("the address for the app is %s", enrolment.URI)
	}
	for _, wrong := range []string{app{former.Secret, c}.code(t, 0), "", "12345", "abcdef"} {
		_, err := w.TurnSecondFactorOn(t.Context(), w.ada.Actor(), entry.Session, wrong, laptop())
		wantError(t, err, auth.ErrWrongCode)
	}
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t) // no code is required yet

	codes := must(w.TurnSecondFactorOn(t.Context(), w.ada.Actor(), entry.Session, app{enrolment.Secret, c}.code(t, 0),
		laptop()))(t)
	if len(codes) != auth.RecoveryCodes || codes[0] == codes[1] {
		t.Errorf("the recovery codes are %q", codes)
	}
	session := must(w.Authenticate(t.Context(), entry.Token))(t)
	if !session.SecondFactor || !session.Account.HasSecondFactor() {
		t.Errorf("the session is %+v", session)
	}
	_, err = w.Authenticate(t.Context(), elsewhere.Token)
	wantError(t, err, auth.ErrSignedOut)
	_, err = w.BeginSecondFactor(t.Context(), session)
	wantError(t, err, rules.ErrExists)
	_, err = w.SignIn(t.Context(), adaEmail, adaPassword, laptop())
	if !errors.As(err, new(auth.SecondFactorError)) {
		t.Errorf("a sign-in ends with %v, want a second step", err)
	}
	if logged := w.count(t,
		`SELECT count(*) FROM platform_audit_event WHERE act = 'turn the second factor on'`); logged != 1 {
		t.Errorf("the audit log has %d entries", logged)
	}
}

func TestACodeIsTakenOnceAndOnlyOfAboutNow(t *testing.T) {
	t.Parallel()
	w, a, _, _ := enrolled(t, auth.Options{})
	token := w.firstStep(t)
	_, err := w.FinishSignIn(t.Context(), token, a.code(t, 2*time.Minute), laptop())
	wantError(t, err, auth.ErrWrongCode)
	_, err = w.FinishSignIn(t.Context(), token, a.code(t, -2*time.Minute), laptop())
	wantError(t, err, auth.ErrWrongCode)

	code := a.code(t, -30*time.Second) // a clock that is late
	entry := must(w.FinishSignIn(t.Context(), token, code[:3]+" "+code[3:], laptop()))(t)
	if session := must(w.Authenticate(t.Context(), entry.Token))(t); !session.SecondFactor {
		t.Errorf("the session is %+v", session)
	}
	_, err = w.FinishSignIn(t.Context(), token, a.code(t, 0), laptop())
	wantError(t, err, auth.ErrSignedOut) // the sign-in is done
	_, err = w.FinishSignIn(t.Context(), w.firstStep(t), code, laptop())
	wantError(t, err, auth.ErrWrongCode) // the code was used
	must(w.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 30*time.Second), laptop()))(t)
	_, err = w.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 0), laptop())
	wantError(t, err, auth.ErrWrongCode) // a later one was used
}

func TestOneOfManyWhoShowTheSameCodeComesIn(t *testing.T) {
	t.Parallel()
	w, a, _, codes := enrolled(t, auth.Options{})
	for what, code := range map[string]string{"the app's code": a.code(t, 0), "a recovery code": codes[0]} {
		var tokens [2]string
		for i := range tokens {
			tokens[i] = w.firstStep(t)
		}
		results := make(chan error, len(tokens))
		for _, token := range tokens {
			go func() {
				_, err := w.FinishSignIn(t.Context(), token, code, laptop())
				results <- err
			}()
		}
		in := 0
		for range tokens {
			err := <-results
			switch {
			case err == nil:
				in++
			case !errors.Is(err, auth.ErrWrongCode):
				t.Errorf("%s: %v", what, err)
			}
		}
		if in != 1 {
			t.Errorf("%s let %d in", what, in)
		}
	}
}

func TestAHalfSignInGivesNothingAndEnds(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testing.T, *world, app){
		"after five minutes": func(_ *testing.T, _ *world, a app) { a.clock.advance(auth.PendingLife) },
		"after five wrong codes": func(t *testing.T, w *world, _ app) {
			token := w.firstStep(t)
			w.exec(t, "UPDATE pending_sign_in SET attempts = 4")
			_, err := w.FinishSignIn(t.Context(), token, "000000", laptop())
			wantError(t, err, auth.ErrWrongCode)
			if told := w.count(t, "SELECT count(*) FROM mail WHERE facts->>'notice' = "+
				"'second_factor_guessed'"); told != 1 {
				t.Errorf("%d notices were sent", told)
			}
			w.exec(t, "UPDATE pending_sign_in SET attempts = 5")
		},
		"with another password": func(t *testing.T, w *world, _ app) {
			must(w.SetPassword(t.Context(), rules.Actor{}, adaEmail, "another fine password"))(t)
		},
		"when its sessions end": func(t *testing.T, w *world,
			_ app,
		) {
			must(w.store.EndSessions(t.Context(), w.ada.ID))(t)
		},
		"when the account is disabled": func(t *testing.T, w *world, _ app) {
			w.exec(t, "UPDATE account SET disabled_at = now() WHERE account_id = $1", int64(w.ada.ID))
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, _, _ := enrolled(t, auth.Options{Mail: true})
			token := w.firstStep(t)
			_, err := w.Authenticate(t.Context(), token)
			wantError(t, err, auth.ErrSignedOut)
			end(t, w, a)
			_, err = w.FinishSignIn(t.Context(), token, a.code(t, 0), laptop())
			wantError(t, err, auth.ErrSignedOut)
		})
	}
	t.Run("made-up tokens", func(t *testing.T) {
		t.Parallel()
		w, a, _, _ := enrolled(t, auth.Options{})
		for _, token := range []string{"", "x", strings.Repeat("A", 43)} {
			_, err := w.FinishSignIn(t.Context(), token, a.code(t, 0), laptop())
			wantError(t, err, auth.ErrSignedOut)
		}
	})
}

func TestCodesAreSlowedForTheAccountWhoeverKnowsItsPassword(t *testing.T) {
	t.Parallel()
	w, a, entry, _ := enrolled(t, auth.Options{})
	for i := range auth.Tight.Free {
		_, err := w.FinishSignIn(t.Context(), w.firstStep(t), "00000"+string(rune('0'+i)), laptop())
		wantError(t, err, auth.ErrWrongCode)
	}
	_, err := w.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 0), laptop())
	if !errors.As(err, new(auth.TooSoonError)) {
		t.Errorf("the sixth code ends with %v, want a wait", err)
	}
	if waiting := w.count(t, "SELECT count(*) FROM pending_sign_in"); waiting > 10 {
		t.Errorf("%d sign-ins wait", waiting)
	}
	from := laptop()
	from.Device = entry.Device
	must(w.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 0), from))(t)
}

func TestARecoveryCodeWorksOnce(t *testing.T) {
	t.Parallel()
	w, _, entry, codes := enrolled(t, auth.Options{Mail: true})
	typed := strings.ToLower(strings.ReplaceAll(codes[3], "-", " "))
	must(w.FinishSignIn(t.Context(), w.firstStep(t), typed, laptop()))(t)
	_, err := w.FinishSignIn(t.Context(), w.firstStep(t), codes[3], laptop())
	wantError(t, err, auth.ErrWrongCode)
	if factor := must(w.SecondFactor(t.Context(), w.ada.ID))(t); factor.RecoveryCodes != auth.RecoveryCodes-1 ||
		factor.Sealed != nil {
		t.Errorf("%d codes are left", factor.RecoveryCodes)
	}
	fresh := must(w.ReplaceRecoveryCodes(t.Context(), w.ada.Actor(), entry.Session.Account, laptop()))(t)
	_, err = w.FinishSignIn(t.Context(), w.firstStep(t), codes[4], laptop())
	wantError(t, err, auth.ErrWrongCode)
	must(w.FinishSignIn(t.Context(), w.firstStep(t), fresh[4], laptop()))(t)
	for _, notice := range []string{"second_factor_on", "recovery_code_used", "recovery_codes_replaced"} {
		if w.count(t, "SELECT count(*) FROM mail WHERE facts->>'notice' = $1", notice) == 0 {
			t.Errorf("Ada was not told of %s", notice)
		}
	}
	for _, code := range append(codes, fresh...) {
		if w.count(t, "SELECT count(*) FROM recovery_code WHERE position(convert_to($1, 'UTF8') IN code_digest) > 0",
			code) > 0 {
			t.Error("a code is stored as it is")
		}
	}
}

func TestALostFactorIsRemovedByAnOperator(t *testing.T) {
	t.Parallel()
	w, _, entry, codes := enrolled(t, auth.Options{Mail: true})
	token := w.firstStep(t)
	operator := rules.Actor{Kind: rules.ActorCommand, Name: "remove-factor by alice"}
	must(w.RemoveSecondFactor(t.Context(), operator, strings.ToUpper(adaEmail)))(t)
	_, err := w.Authenticate(t.Context(), entry.Token)
	wantError(t, err, auth.ErrSignedOut)
	_, err = w.FinishSignIn(t.Context(), token, codes[0], laptop())
	wantError(t, err, auth.ErrSignedOut)
	must(w.SignIn(t.Context(), adaEmail, adaPassword, laptop()))(t)
	_, err = w.RemoveSecondFactor(t.Context(), operator, adaEmail)
	wantError(t, err, rules.ErrNotFound)
	if logged := w.count(t,
		`SELECT count(*) FROM platform_audit_event WHERE act = 'remove the second factor' AND actor_name = $1`,
		operator.Name); logged != 1 {
		t.Errorf("the audit log has %d entries", logged)
	}
	if told := w.count(t, "SELECT count(*) FROM mail WHERE facts->>'notice' = 'second_factor_off'"); told != 1 {
		t.Errorf("%d notices were sent", told)
	}
}

// Sessions of processes that do not know of second factors do not count.
func TestASessionWithoutTheFactorDoesNotCount(t *testing.T) {
	t.Parallel()
	w, _, entry, _ := enrolled(t, auth.Options{})
	w.exec(t, "UPDATE session SET second_factor = false WHERE session_id = $1", entry.Session.ID)
	_, err := w.Authenticate(t.Context(), entry.Token)
	wantError(t, err, auth.ErrSignedOut)
}

func TestANewPasswordKeepsTheFactor(t *testing.T) {
	t.Parallel()
	w, _, entry, _ := enrolled(t, auth.Options{})
	session := must(w.Authenticate(t.Context(), entry.Token))(t)
	changed := must(w.ChangePassword(t.Context(), session, adaPassword, "another fine password", laptop()))(t)
	if session := must(w.Authenticate(t.Context(), changed.Token))(t); !session.SecondFactor {
		t.Errorf("the session is %+v", session)
	}
	_, err := w.SignIn(t.Context(), adaEmail, "another fine password", laptop())
	if !errors.As(err, new(auth.SecondFactorError)) {
		t.Errorf("a sign-in with it ends with %v, want a second step", err)
	}
}

func TestConfirmingOnesIdentityTakesAllFactors(t *testing.T) {
	t.Parallel()
	w, a, entry, _ := enrolled(t, auth.Options{})
	w.exec(t, "UPDATE session SET created_at = now() - interval '1 hour', confirmed_at = NULL")
	stale := func() bool {
		session := must(w.Authenticate(t.Context(), entry.Token))(t)
		return !session.IsFresh(time.Now())
	}
	session := must(w.Authenticate(t.Context(), entry.Token))(t)
	for name, test := range map[string]struct {
		password, code string
		want           error
	}{
		"a wrong password":    {"not " + adaPassword, a.code(t, 0), auth.ErrWrongPassword},
		"a password too long": {strings.Repeat("x", 600), a.code(t, 0), auth.ErrWrongPassword},
		"no code":             {adaPassword, "", auth.ErrNeedsCode},
		"a wrong code":        {adaPassword, "000000", auth.ErrWrongCode},
	} {
		err := w.ConfirmIdentity(t.Context(), session, test.password, test.code, laptop())
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if !stale() {
			t.Errorf("%s makes the session fresh", name)
		}
	}
	if err := w.ConfirmIdentity(t.Context(), session, adaPassword, a.code(t, 0), laptop()); err != nil || stale() {
		t.Errorf("password and code end with %v, and the session is stale: %v", err, stale())
	}
}

func TestSecretsAreSealedAndKeysCanBeChanged(t *testing.T) {
	t.Parallel()
	former := newKey(t)
	w, a, _, _ := enrolled(t, auth.Options{Vault: must(auth.NewVault(former))(t)})
	sealedBy := func() (id string) {
		connection := connect(t, w.url)
		if err := connection.QueryRow(t.Context(),
			"SELECT encode(substr(secret, 1, 4), 'hex') FROM second_factor").Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := sealedBy()
	next := newKey(t)
	both := w.newGate(w.store, auth.Options{Now: a.clock.Now, Vault: must(auth.NewVault(next + ", " + former))(t)})
	must(both.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 0), laptop()))(t)
	if sealedBy() == first {
		t.Error("the secret is still sealed under the former key")
	}
	a.clock.advance(time.Minute)
	alone := w.newGate(w.store, auth.Options{Now: a.clock.Now, Vault: must(auth.NewVault(next))(t)})
	must(alone.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 0), laptop()))(t)

	for what, gate := range map[string]*auth.Gate{"another key": w.Gate, "no key": w.newGate(w.store, auth.Options{})} {
		_, err := gate.FinishSignIn(t.Context(), w.firstStep(t), a.code(t, 0), laptop())
		if err == nil || errors.Is(err, auth.ErrWrongCode) || errors.Is(err, auth.ErrSignedOut) {
			t.Errorf("with %s a sign-in ends with %v", what, err)
		}
	}
	_, err := w.newGate(w.store, auth.Options{}).BeginSecondFactor(t.Context(), auth.Session{Account: w.ada})
	wantError(t, err, auth.ErrNoSecretKey)
	for _, wrong := range []string{"x", newKey(t) + ",", "c2hvcnQ="} {
		if _, err := auth.NewVault(wrong); err == nil {
			t.Errorf("the keys %q are accepted", wrong)
		}
	}
}

type watched struct {
	auth.Store
	calls *[]string
}

func (s watched) note(method string) { *s.calls = append(*s.calls, method) }

func (s watched) PasswordOf(ctx context.Context, email, slug string) (auth.Account, string, error) {
	s.note("PasswordOf")
	return s.Store.PasswordOf(ctx, email, slug)
}

func (s watched) Attempt(ctx context.Context, limits []auth.Limit) (auth.Counter, time.Duration, error) {
	s.note("Attempt")
	return s.Store.Attempt(ctx, limits)
}

func (s watched) ForgetAttempts(ctx context.Context, subject auth.Subject) error {
	s.note("ForgetAttempts")
	return s.Store.ForgetAttempts(ctx, subject)
}

func (s watched) QueueMail(ctx context.Context, mail auth.Mail, limits auth.MailLimits) (auth.Mail, error) {
	s.note("QueueMail")
	return s.Store.QueueMail(ctx, mail, limits)
}

func (s watched) SecondFactor(ctx context.Context, account auth.AccountID) (auth.SecondFactor, error) {
	s.note("SecondFactor")
	return s.Store.SecondFactor(ctx, account)
}

func (s watched) CreatePending(ctx context.Context, account auth.AccountID, hash string, token auth.Digest, expiresAt,
	now time.Time, most int,
) error {
	s.note("CreatePending")
	return s.Store.CreatePending(ctx, account, hash, token, expiresAt, now, most)
}

// Calls are compared, because durations depend on the machine.
func TestTheWorkDoesNotTellWhichAddressesHaveAccounts(t *testing.T) {
	t.Parallel()
	w, a, _, _ := enrolled(t, auth.Options{})
	w.join(t, "plain@example.com", auth.Viewer)
	w.join(t, "disabled@example.com", auth.Viewer)
	w.exec(t, "UPDATE account SET disabled_at = now() WHERE email = 'disabled@example.com'")
	var calls []string
	gate := w.newGate(watched{w.store, &calls},
		auth.Options{Mail: true, Now: a.clock.Now, Vault: must(auth.NewVault(newKey(t)))(t)})
	work := func(do func()) (hashes int64, done []string) {
		calls, hashes = nil, w.hashes.Load()
		do()
		return w.hashes.Load() - hashes, slices.Clone(calls)
	}
	type outcome struct {
		hashes int64
		calls  []string
	}
	unproven, _ := w.join(t, "claimed@example.com", auth.Viewer)
	w.exec(t, "UPDATE account SET unproven_in = $2 WHERE account_id = $1", int64(unproven.Account.ID),
		int64(unproven.TenantID))
	var wantSignIn, wantReset *outcome
	atTenant := outcome{2, []string{"PasswordOf", "PasswordOf", "Attempt", "Attempt"}}
	for _, email := range []string{"claimed@example.com", adaEmail, "nobody@example.com", "disabled@example.com"} {
		for _, slug := range []string{"acme", "nowhere"} {
			hashes, done := work(func() {
				_, err := gate.SignIn(t.Context(), email, "not "+adaPassword, laptopAt(slug))
				wantError(t, err, auth.ErrWrongPassword)
			})
			if hashes != atTenant.hashes || !slices.Equal(done, atTenant.calls) {
				t.Errorf("a sign-in of %s at %q hashes %d times and calls %q, want %+v", email, slug, hashes, done,
					atTenant)
			}
		}
	}
	for _, email := range []string{
		"nobody@example.com", adaEmail, "plain@example.com", "disabled@example.com",
		"claimed@example.com", "no address",
	} {
		hashes, done := work(func() {
			_, err := gate.SignIn(t.Context(), email, "not "+adaPassword, laptop())
			wantError(t, err, auth.ErrWrongPassword)
		})
		if wantSignIn == nil {
			wantSignIn = &outcome{hashes, done}
		}
		if hashes != 1 || hashes != wantSignIn.hashes || !slices.Equal(done, wantSignIn.calls) {
			t.Errorf("a sign-in of %s hashes %d times and calls %q, want %+v", email, hashes, done, wantSignIn)
		}
		if email == "no address" {
			continue
		}
		hashes, done = work(func() {
			if err := gate.AskReset(t.Context(), email, laptop().IP); err != nil {
				t.Error(err)
			}
		})
		if wantReset == nil {
			wantReset = &outcome{hashes, done}
		}
		if hashes != 0 || !slices.Equal(done, wantReset.calls) {
			t.Errorf("a reset for %s hashes %d times and calls %q, want %+v", email, hashes, done, wantReset)
		}
	}
	if slices.Contains(wantSignIn.calls, "SecondFactor") || slices.Contains(wantSignIn.calls, "CreatePending") {
		t.Errorf("a wrong password calls %q", wantSignIn.calls)
	}
}
