package auth_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAnInvitationMakesANewMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	token := w.invite(t, "bob@example.com", auth.Editor)
	invitation, tenant, err := w.Invitation(ctx, token)
	if err != nil || tenant.Slug != "acme" || invitation.Email != "bob@example.com" ||
		invitation.InvitedBy != adaEmail {
		t.Errorf("the link shows %+v to %+v, %v", invitation, tenant, err)
	}
	if life := invitation.ExpiresAt.Sub(invitation.CreatedAt).Round(time.Minute); life != 7*24*time.Hour {
		t.Errorf("it is open for %s", life)
	}
	member, entry, err := w.AcceptAsNew(ctx, "", token, "Bob", adaPassword, laptop())
	if err != nil || member.Role != auth.Editor || member.TenantID != w.tenant || member.Account.Name != "Bob" ||
		member.Account.PlatformAdmin {
		t.Errorf("the member is %+v, %v", member, err)
	}
	if session := must(w.Authenticate(ctx, entry.Token))(t); session.Account != member.Account {
		t.Errorf("the session is %+v", session)
	}
	at := laptop()
	at.Tenant = "acme" // the inviter passed the link on, so the address is not proven
	must(w.SignIn(ctx, "bob@example.com", adaPassword, at))(t)
	if role := must(w.store.RoleIn(ctx, w.tenant, member.Account.ID))(t); role != auth.Editor {
		t.Errorf("the role is %s", role)
	}
}

func TestAnInvitationThatIsNotOpenIsNotFound(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	tests := map[string]func(*testing.T, *world) (token string){
		"made up":  func(*testing.T, *world) string { return strings.Repeat("A", 43) },
		"no token": func(*testing.T, *world) string { return "" },
		"of a week": func(t *testing.T, w *world) string {
			past := w.newGate(w.store, auth.Options{Now: func() time.Time {
				return time.Now().Add(
					-7*24*time.Hour - time.Second)
			}})
			_, token, err := past.Invite(ctx, w.ada.Actor(),
				auth.Invitation{TenantID: w.tenant, Email: "bob@example.com", Role: auth.Viewer})
			return must(token, err)(t)
		},
		"revoked": func(t *testing.T, w *world) string {
			token := w.invite(t, "bob@example.com", auth.Viewer)
			open := must(w.store.Invitations(ctx, w.tenant, 0, 10))(t)
			if err := w.store.RevokeInvitation(ctx, w.ada.Actor(), w.tenant, open[0].ID); err != nil {
				t.Error(err)
			}
			wantError(t, w.store.RevokeInvitation(ctx, w.ada.Actor(), w.tenant, open[0].ID), rules.ErrNotFound)
			return token
		},
		"replaced by another": func(t *testing.T, w *world) string {
			token := w.invite(t, "bob@example.com", auth.Viewer)
			w.invite(t, "BOB@example.com", auth.Owner)
			return token
		},
		"used": func(t *testing.T, w *world) string {
			token := w.invite(t, "carol@example.com", auth.Viewer)
			if _, _, err := w.AcceptAsNew(ctx, "", token, "", adaPassword, auth.Browser{}); err != nil {
				t.Fatal(err)
			}
			return token
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, auth.Options{})
			token := make(t, w)
			hashes := w.hashes.Load()
			_, _, err := w.Invitation(ctx, token)
			wantError(t, err, rules.ErrNotFound)
			_, _, err = w.AcceptAsNew(ctx, "", token, "", adaPassword, auth.Browser{})
			wantError(t, err, rules.ErrNotFound)
			_, err = w.Accept(ctx, w.ada.Actor(), auth.Session{Account: w.ada}, token)
			wantError(t, err, rules.ErrNotFound)
			if w.hashes.Load() != hashes {
				t.Error("a password was hashed for it")
			}
		})
	}
}

func TestAnAccountAcceptsWhatIsMadeOutToIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	bob, _ := w.join(t, "Bob@example.com", auth.Viewer)
	other := w.newTenant(t, "other")
	invite := func(email string, role auth.Role) string {
		_, token, err := w.Invite(ctx, w.ada.Actor(), auth.Invitation{TenantID: other, Email: email, Role: role})
		return must(token, err)(t)
	}
	accept := func(token string) (auth.Member, error) {
		return w.Accept(ctx, bob.Account.Actor(), auth.Session{Account: bob.Account}, token)
	}
	forEve := invite("eve@example.com", auth.Owner)
	_, err := accept(forEve)
	wantError(t, err, auth.ErrOtherAddress)
	if _, _, err := w.Invitation(ctx, forEve); err != nil {
		t.Errorf("an attempt of somebody else used it up: %v", err)
	}

	forBob := invite("BOB@example.com", auth.Editor)
	if member := must(accept(forBob))(t); member.Role != auth.Editor || member.TenantID != other {
		t.Errorf("the member is %+v", member)
	}
	_, _, err = w.Invite(ctx, w.ada.Actor(),
		auth.Invitation{TenantID: other, Email: "bob@EXAMPLE.com", Role: auth.Owner})
	wantError(t, err, rules.ErrExists)
	tenants := must(w.store.Memberships(ctx, bob.Account.ID, "", 10))(t)
	if len(tenants) != 2 || tenants[0].Tenant.Slug != "acme" || tenants[1].Tenant.Slug != "other" ||
		tenants[1].Role != auth.Editor {
		t.Errorf("the memberships are %+v", tenants)
	}
}

func TestAcceptingKeepsAHigherRole(t *testing.T) {
	t.Parallel()
	for has, results := range map[auth.Role]map[auth.Role]auth.Role{
		auth.Viewer: {auth.Viewer: auth.Viewer, auth.Owner: auth.Owner},
		auth.Editor: {auth.Viewer: auth.Editor, auth.Owner: auth.Owner},
		auth.Owner:  {auth.Viewer: auth.Owner},
	} {
		for invited, want := range results {
			t.Run(fmt.Sprintf("%s invited as %s", has, invited), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, auth.Options{})
				bob := must(w.store.CreateAccount(t.Context(), w.ada.Actor(), auth.Account{Email: "bob@example.com"},
					"hash"))(t)
				token := w.invite(t, bob.Email, invited)
				must(w.store.AddMember(t.Context(), w.ada.Actor(), w.tenant, bob.ID, has))(t)
				member := must(w.Accept(t.Context(), bob.Actor(), auth.Session{Account: bob}, token))(t)
				if member.Role != want {
					t.Errorf("the role is %s, want %s", member.Role, want)
				}
			})
		}
	}
}

func TestAnInvitationIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	bob := must(w.store.CreateAccount(ctx, w.ada.Actor(), auth.Account{Email: "bob@example.com"}, "hash"))(t)
	for name, accept := range map[string]func() error{
		"by a new account": func(token string) func() error {
			return func() error {
				_, _, err := w.AcceptAsNew(ctx, "", token, "", adaPassword, auth.Browser{})
				return err
			}
		}(w.invite(t, "new@example.com", auth.Viewer)),
		"by an account": func(token string) func() error {
			return func() error {
				_, err := w.Accept(ctx, bob.Actor(), auth.Session{Account: bob}, token)
				return err
			}
		}(w.invite(t, bob.Email, auth.Viewer)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var accepted atomic.Int64
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					switch err := accept(); {
					case err == nil:
						accepted.Add(1)
					case !errors.Is(err, rules.ErrNotFound) && !errors.Is(err, rules.ErrExists):
						t.Error(err)
					}
				})
			}
			all.Wait()
			if accepted.Load() != 1 {
				t.Errorf("it was accepted %d times", accepted.Load())
			}
		})
	}
}

func TestWrongInvitationsAndAccountsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	ctx := t.Context()
	_, _, err := w.Invite(ctx, w.ada.Actor(), auth.Invitation{TenantID: w.tenant, Email: "bob", Role: "root"})
	wantFields(t, err, "email", "role")
	token := w.invite(t, "bob@example.com", auth.Viewer)
	_, _, err = w.AcceptAsNew(ctx, "", token, " ", "bob@example.com", auth.Browser{})
	wantFields(t, err, "name", "password")
	_, _, err = w.Invite(ctx, w.ada.Actor(), auth.Invitation{TenantID: 0, Email: "bob@example.com", Role: auth.Owner})
	wantError(t, err, rules.ErrNotFound)
	if n := w.count(t, "SELECT count(*) FROM account"); n != 1 {
		t.Errorf("there are %d accounts", n)
	}
}

// Signing in to an unproven account must not reset the guesses at the account that has proven the address.
func TestAnUnprovenAccountDoesNotHelpToGuess(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	ctx := t.Context()
	claimed := w.claim(t)
	for range auth.Tight.Free {
		_, err := w.SignIn(ctx, adaEmail, "guess", laptop())
		wantError(t, err, auth.ErrWrongPassword)
		must(w.SignIn(ctx, adaEmail, claimed, laptopAt("acme")))(t)
	}
	if _, err := w.SignIn(ctx, adaEmail, "guess", laptop()); !errors.As(err, &auth.TooSoonError{}) {
		t.Errorf("a further guess is %v, want a wait", err)
	}
}

func (w *world) claim(t *testing.T) string {
	t.Helper()
	const password = "an engine of difference"
	if _, _, err := w.AcceptAsNew(t.Context(), "", w.invite(t, adaEmail+"x", auth.Viewer), "", password,
		auth.Browser{}); err != nil {
		t.Fatal(err)
	}
	w.exec(t, "UPDATE account SET email = $1 WHERE unproven_in IS NOT NULL", adaEmail)
	return password
}

func laptopAt(tenant string) auth.Browser {
	from := laptop()
	from.Tenant = tenant
	return from
}

// The UI leads everybody to a tenant's address.
func TestAClaimedAddressKeepsNobodyOutAtTheTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, auth.Options{})
	claimed := w.claim(t)
	entry, err := w.SignIn(t.Context(), adaEmail, adaPassword, laptopAt("acme"))
	if err != nil || !entry.Session.Account.Proven() {
		t.Errorf("the person with the address is answered %+v, %v", entry.Session.Account, err)
	}
	entry, err = w.SignIn(t.Context(), adaEmail, claimed, laptopAt("acme"))
	if err != nil || entry.Session.Account.Proven() {
		t.Errorf("the account that claims it is answered %+v, %v", entry.Session.Account, err)
	}
	for _, tenant := range []string{"", "other"} {
		_, err := w.SignIn(t.Context(), adaEmail, claimed, laptopAt(tenant))
		wantError(t, err, auth.ErrWrongPassword)
	}
}

func TestAClaimedAddressKeepsNoKnownDeviceOutOfABusyProcess(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t, auth.Options{})
	home := laptopAt("acme")
	home.Device = must(w.SignIn(ctx, adaEmail, adaPassword, laptop()))(t).Device
	w.claim(t)
	gate := auth.NewGate(w.store, auth.Options{Hashes: 1})
	var runs atomic.Int64
	held, busy := make(chan struct{}), make(chan struct{})
	gate.WatchHashes(func() {
		if runs.Add(1) == 1 {
			<-held
		}
	})
	var all sync.WaitGroup
	for i := range 18 { // one has the slot and 16 wait
		all.Go(func() {
			_, err := gate.SignIn(ctx, fmt.Sprintf("%d@example.com", i), "guess", auth.Browser{})
			if errors.Is(err, auth.ErrBusy) {
				close(busy)
			}
		})
	}
	<-busy
	if _, err := gate.SignIn(ctx, adaEmail, adaPassword, home); err != nil {
		t.Errorf("the owner's device is answered %v", err)
	}
	close(held)
	all.Wait()
}

func TestGuessesAtATenantCountForTheAddress(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	claimed := w.claim(t)
	for range auth.Tight.Free {
		_, err := w.SignIn(t.Context(), adaEmail, "guess", laptopAt("acme"))
		wantError(t, err, auth.ErrWrongPassword)
		must(w.SignIn(t.Context(), adaEmail, claimed, laptopAt("acme")))(t)
	}
	for _, tenant := range []string{"", "acme", "nowhere"} {
		if _, err := w.SignIn(t.Context(), adaEmail, "guess", laptopAt(tenant)); !errors.As(err, &auth.TooSoonError{}) {
			t.Errorf("a further guess at %q is %v, want a wait", tenant, err)
		}
	}
	must(w.SignIn(t.Context(), adaEmail, claimed, laptopAt("acme")))(t) // others' guesses do not lock it out
}

func TestRefusalsAtATenantTellNobodyWhoseAddressIsClaimed(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t, auth.Options{})
	w.claim(t)
	for i, who := range []struct{ email, tenant string }{
		{adaEmail, "acme"}, {adaEmail, "nowhere"}, {"bob@example.com", "acme"}, {"bob@example.com", "nowhere"},
	} {
		from := laptopAt(who.tenant)
		from.IP = netip.AddrFrom4([4]byte{203, 0, byte(i), 9})
		for attempt := range auth.Tight.Free + 1 {
			w.hashes.Store(0)
			_, err := w.SignIn(t.Context(), who.email, "guess", from)
			want, wantsWait := int64(2), attempt == auth.Tight.Free
			if wantsWait {
				want = 0
			}
			if got := w.hashes.Load(); errors.As(err, &auth.TooSoonError{}) != wantsWait || got != want {
				t.Errorf("attempt %d at %s of %s took %d hashes and answered %v", attempt, who.email, who.tenant, got,
					err)
			}
		}
	}
}
