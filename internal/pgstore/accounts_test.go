package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestChangesToAccountsAreAuditedOnThePlatform(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx, viewer := t.Context(), p.ours.viewer.Account
	viewer.PlatformAdmin = true
	must(p.UpdateAccount(ctx, p.ours.by, viewer))(t)
	if err := p.ChangePassword(ctx, p.ours.by, viewer.ID, someHash, "another hash"); err != nil {
		t.Fatal(err)
	}
	var log string
	err := connect(t, p.url).QueryRow(ctx,
		`SELECT string_agg(concat_ws(' ', action, actor_id = $2, after->'is_platform_admin',
		after->'password_hash_changed', before ? 'password_hash' OR after ? 'password_hash'), '; ' ORDER BY audit_id)
		FROM platform_audit_event WHERE object_kind = 'account' AND object_id = $1`, fmt.Sprint(viewer.ID),
		p.ours.by.ID).Scan(&log)
	if want := "create f false; update t true f; update t true true f"; err != nil || log != want {
		t.Errorf("the log is %q (%v), want %q", log, err, want)
	}
	exec(t, p.url, "UPDATE account SET updated_at = now()")
	if _, err := connect(t, p.url).Exec(ctx, "DELETE FROM platform_audit_event"); err == nil {
		t.Error("the log can be deleted")
	}
}

func TestTwoAdminsWhoDemoteEachOtherLeaveOne(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx := t.Context()
	var admins [2]auth.Account
	for i := range admins {
		admins[i] = must(p.CreateAccount(ctx, rules.Actor{},
			auth.Account{Email: fmt.Sprintf("%d@example.com", i), PlatformAdmin: true}, someHash))(t)
	}
	for round := range 20 {
		var errs [2]error
		var both sync.WaitGroup
		for i, admin := range admins {
			both.Go(func() {
				if admin.PlatformAdmin = false; round%2 == 1 {
					admin.PlatformAdmin, admin.DisabledAt = true, time.Now()
				}
				_, errs[i] = p.UpdateAccount(ctx, admins[1-i].Actor(), admin)
			})
		}
		both.Wait()
		if lost := errors.Is(errs[0], auth.ErrLastAdmin) != errors.Is(errs[1], auth.ErrLastAdmin); !lost {
			t.Fatalf("round %d: %v and %v, want one that is the last", round, errs[0], errs[1])
		}
		for i := range admins { // both are again
			admins[i] = must(p.Account(ctx, admins[i].ID))(t)
			admins[i].PlatformAdmin, admins[i].DisabledAt = true, time.Time{}
			admins[i] = must(p.UpdateAccount(ctx, p.ours.by, admins[i]))(t)
		}
	}
}

func TestATenantsOnlyOwnerIsNotDisabled(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	disable := func(m auth.Member) error {
		m.Account.DisabledAt = time.Now()
		_, err := p.UpdateAccount(t.Context(), p.ours.by, m.Account)
		return err
	}
	if err := disable(p.ours.second); err != nil {
		t.Errorf("one of two owners cannot be disabled: %v", err)
	}
	err := disable(p.ours.owner)
	wantError(t, err, auth.ErrLastOwner)
	if only := (auth.OnlyOwnerError{}); !errors.As(err, &only) || !slices.Equal(only.Tenants, []string{"ours"}) {
		t.Errorf("the only owner is told %v", err)
	}
}

func TestOfTwoWhoEditAPersonOneIsTold(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx := t.Context()
	viewer := p.ours.viewer
	viewer.Role = auth.Editor
	changed := must(p.ChangeRole(ctx, p.ours.by, viewer))(t)
	if changed.Version != viewer.Version+1 || changed.Role != auth.Editor {
		t.Errorf("the member is %+v", changed)
	}
	_, err := p.ChangeRole(ctx, p.ours.by, viewer)
	wantError(t, err, rules.ErrChanged)
	stale := rules.Expected(viewer.Version)
	wantError(t, p.RemoveMember(ctx, p.ours.by, p.ours.tenant, viewer.Account.ID, stale, false), rules.ErrChanged)
	if err := p.RemoveMember(ctx, p.ours.by, p.ours.tenant, viewer.Account.ID, rules.Expected(changed.Version),
		false); err != nil {
		t.Error(err)
	}

	account := p.ours.owner.Account
	account.Name = "New"
	updated := must(p.UpdateAccount(ctx, p.ours.by, account))(t)
	if updated.Name != "New" || updated.Version != account.Version+1 {
		t.Errorf("the account is %+v", updated)
	}
	_, err = p.UpdateAccount(ctx, p.ours.by, account)
	wantError(t, err, rules.ErrChanged)
	account.ID = 0
	_, err = p.UpdateAccount(ctx, p.ours.by, account)
	wantError(t, err, rules.ErrNotFound)
	wantError(t, p.ChangePassword(ctx, p.ours.by, updated.ID, "another hash", "new"), rules.ErrChanged)
	wantError(t, p.ChangePassword(ctx, p.ours.by, 0, someHash, "new"), rules.ErrNotFound)
}

func TestAnAddressIsOneAccounts(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	_, err := p.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: "OWNER@ours.Example"}, someHash)
	wantError(t, err, rules.ErrExists)
	// U+212A is not the same letter, although Unicode folds it to k.
	p.account(t, "k@example.com")
	p.account(t, "\u212a@example.com")
}

func TestASessionIsNotCreatedForAnAccountThatChanged(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx := t.Context()
	account := p.ours.owner.Account
	create := func(token string) error {
		_, err := p.CreateSession(ctx, auth.NewSession{
			Session: auth.Session{Account: account}, Token: tokenOf(token), PasswordHash: someHash,
		}, auth.Live{})
		return err
	}
	if err := create("first"); err != nil {
		t.Fatal(err)
	}
	// The sign-in has judged the old password before.
	connection := connect(t, p.url)
	change := must(connection.Begin(ctx))(t)
	must(change.Exec(ctx, "UPDATE account SET password_hash = 'another' WHERE account_id = $1", account.ID))(t)
	signIn := make(chan error, 1)
	go func() { signIn <- create("racing") }()
	for waiting := 0; waiting == 0 && len(signIn) == 0; {
		err := change.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND datname = current_database()`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := change.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	wantError(t, <-signIn, rules.ErrNotFound)
	wantError(t, create("late"), rules.ErrNotFound)
	account.DisabledAt = time.Now()
	must(p.UpdateAccount(ctx, p.ours.by, account))(t)
	if left := must(p.Sessions(ctx, account.ID, auth.Live{}))(t); len(left) > 0 {
		t.Errorf("%d sessions outlive the account", len(left))
	}
}

func TestAnAccountHasABoundedNumberOfSessions(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx := t.Context()
	ours, theirs := p.ours.owner.Account, p.theirs.owner.Account
	create := func(account auth.Account, token string) auth.Session {
		session := auth.NewSession{
			Session: auth.Session{Account: account}, Token: tokenOf(token),
			PasswordHash: someHash,
		}
		return must(p.CreateSession(ctx, session, auth.Live{}))(t)
	}
	other := create(theirs, "theirs")
	first := create(ours, "0")
	for i := range auth.MaxSessions {
		create(ours, fmt.Sprint(i+1))
	}
	sessions := must(p.Sessions(ctx, ours.ID, auth.Live{}))(t)
	if len(sessions) != auth.MaxSessions || sessions[len(sessions)-1].ID == first.ID {
		t.Errorf("there are %d sessions, and the oldest is %d", len(sessions), sessions[len(sessions)-1].ID)
	}
	wantError(t, p.EndSession(ctx, ours.ID, other.ID), rules.ErrNotFound)
	if len(must(p.Sessions(ctx, theirs.ID, auth.Live{}))(t)) != 1 {
		t.Error("another account's session was ended")
	}
}
