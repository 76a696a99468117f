package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

// people has two tenants with an owner, a second owner, a viewer and an open invitation each. Its end checks that
// nothing of the second was touched.
type people struct {
	*pgstore.Store
	url          string
	ours, theirs staff
}

type staff struct {
	tenant        rules.TenantID
	owner, second auth.Member
	viewer        auth.Member
	invitation    auth.Invitation
	by            rules.Actor
}

const someHash = "a hash"

func newPeople(t *testing.T) *people {
	t.Helper()
	p := &people{url: devdbtest.Postgres(t)}
	p.Store = must(pgstore.Open(t.Context(), runtimeURL(t, p.url), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(p.Close)
	p.theirs = p.hire(t, "theirs")
	p.ours = p.hire(t, "ours")
	connection := connect(t, p.url)
	before := p.rows(t, connection)
	t.Cleanup(func() {
		if after := p.rows(t, connection); after != before {
			t.Errorf("the other tenant's rows were\n%s\nand are now\n%s", before, after)
		}
	})
	return p
}

func (p *people) rows(t *testing.T, connection *pgx.Conn) (text string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also called when the test has ended
	for _, table := range []string{"member", "invitation", "audit_event"} {
		var rows string
		query := "SELECT string_agg(r::text, E'\n' ORDER BY r::text) FROM " + table + " AS r WHERE tenant_id = $1"
		if err := connection.QueryRow(ctx, query, p.theirs.tenant).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		text += table + "\n" + rows + "\n"
	}
	return text
}

func (p *people) hire(t *testing.T, slug string) (s staff) {
	t.Helper()
	ctx := t.Context()
	err := connect(t, p.url).QueryRow(ctx, "INSERT INTO tenant (slug, name) VALUES ($1, $1) RETURNING tenant_id",
		slug).Scan(&s.tenant)
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, role auth.Role) auth.Member {
		account := p.account(t, name+"@"+slug+".example")
		if name == "owner" {
			s.by = account.Actor()
			s.by.Act, s.by.RequestID = "hire", "r1"
		}
		return must(p.AddMember(ctx, s.by, s.tenant, account.ID, role))(t)
	}
	s.owner, s.second, s.viewer = add("owner", auth.Owner), add("second", auth.Owner), add("viewer", auth.Viewer)
	s.invitation = must(p.Invite(ctx, s.by, auth.Invitation{
		TenantID: s.tenant, Email: "new@example.com", Role: auth.Editor, InvitedBy: "boss", ExpiresAt: tomorrow(),
	}, tokenOf(slug)))(t)
	return s
}

func (p *people) account(t *testing.T, email string) auth.Account {
	t.Helper()
	return must(p.CreateAccount(t.Context(), rules.Actor{}, auth.Account{Email: email, Name: "N " + email},
		someHash))(t)
}

func tokenOf(text string) (digest auth.Digest) {
	copy(digest[:], text)
	return digest
}

func TestPeopleOfAnotherTenantAreNotFound(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ours, theirs := p.ours.tenant, p.theirs
	stolen := theirs.viewer
	stolen.TenantID, stolen.Role = ours, auth.Owner
	tests := map[string]func(context.Context) error{
		"reading a member": func(ctx context.Context) error {
			_, err := p.Member(ctx, ours, theirs.viewer.Account.ID)
			return err
		},
		"reading a role": func(ctx context.Context) error {
			_, err := p.RoleIn(ctx, ours, theirs.owner.Account.ID)
			return err
		},
		"changing a role": func(ctx context.Context) error {
			_, err := p.ChangeRole(ctx, p.ours.by, stolen)
			return err
		},
		"removing a member": func(ctx context.Context) error {
			return p.RemoveMember(ctx, p.ours.by, ours, theirs.viewer.Account.ID, rules.AnyVersion, false)
		},
		"revoking an invitation": func(ctx context.Context) error {
			return p.RevokeInvitation(ctx, p.ours.by, ours, theirs.invitation.ID)
		},
		"inviting to a tenant that isn't": func(ctx context.Context) error {
			_, err := p.Invite(ctx, p.ours.by,
				auth.Invitation{Email: "a@b.c", Role: auth.Viewer, ExpiresAt: tomorrow()}, tokenOf("x"))
			return err
		},
		"adding a member to a tenant that isn't": func(ctx context.Context) error {
			_, err := p.AddMember(ctx, p.ours.by, 0, theirs.owner.Account.ID, auth.Viewer)
			return err
		},
		"adding an account that isn't": func(ctx context.Context) error {
			_, err := p.AddMember(ctx, p.ours.by, ours, 0, auth.Viewer)
			return err
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, do(t.Context()), rules.ErrNotFound) })
	}
}

func TestListsOfPeopleHoldOneTenantsAndGoOn(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx, ours := t.Context(), p.ours.tenant
	members := must(p.Members(ctx, ours, auth.AccountPlace{}, 2))(t)
	members = append(members, must(p.Members(ctx, ours, members[1].Account.Place(), 10))(t)...)
	for i, email := range []string{"owner@ours.example", "second@ours.example", "viewer@ours.example"} {
		if len(members) != 3 || members[i].Account.Email != email || members[i].TenantID != ours {
			t.Fatalf("the members are %+v", members)
		}
	}
	second := must(p.Invite(ctx, p.ours.by, auth.Invitation{
		TenantID: ours, Email: "b@example.com", Role: auth.Viewer, InvitedBy: "boss", ExpiresAt: tomorrow(),
	}, tokenOf("second")))(t)
	first := must(p.Invitations(ctx, ours, 0, 1))(t)
	rest := must(p.Invitations(ctx, ours, first[0].ID, 10))(t)
	if first[0] != second || len(rest) != 1 || rest[0] != p.ours.invitation {
		t.Errorf("the invitations are %+v and %+v", first, rest)
	}
	found := must(p.Accounts(ctx, "OURS.ex", p.ours.owner.Account.Place(), 10))(t)
	if len(found) != 2 || found[0].Email != "second@ours.example" || found[1].Email != "viewer@ours.example" {
		t.Errorf("the accounts found are %+v", found)
	}
	if byName := must(p.Accounts(ctx, "n VIEWER@ours", auth.AccountPlace{}, 10))(t); len(byName) != 1 {
		t.Errorf("by name are found %+v", byName)
	}
	shared := p.ours.owner.Account.ID
	if tenants := must(p.Memberships(ctx, shared, "", 10))(t); len(tenants) != 1 || tenants[0].Tenant.ID != ours {
		t.Errorf("the memberships are %+v", tenants)
	}
}

func TestTwoOwnersWhoRemoveEachOtherLeaveOne(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx, tenant := t.Context(), p.ours.tenant
	remove := func(m auth.Member) error {
		return p.RemoveMember(ctx, p.ours.by, tenant, m.Account.ID, rules.AnyVersion, false)
	}
	demote := func(m auth.Member) error {
		m.Role = auth.Editor
		_, err := p.ChangeRole(ctx, p.ours.by, m)
		return err
	}
	for round := range 20 {
		one, two := p.ours.owner, p.ours.second
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() { errs[0] = remove(one) })
		both.Go(func() { errs[1] = demote(two) })
		both.Wait()
		if lost := errors.Is(errs[0], auth.ErrLastOwner) != errors.Is(errs[1], auth.ErrLastOwner); !lost {
			t.Fatalf("round %d: %v and %v, want one that is the last", round, errs[0], errs[1])
		}
		if errs[0] == nil {
			p.ours.owner = must(p.AddMember(ctx, p.ours.by, tenant, one.Account.ID, auth.Owner))(t)
		} else {
			two.Version++
			p.ours.second = must(p.ChangeRole(ctx, p.ours.by, two))(t)
		}
	}
	disabled := p.ours.second.Account
	disabled.DisabledAt = time.Now()
	must(p.UpdateAccount(ctx, p.ours.by, disabled))(t)
	wantError(t, demote(p.ours.owner), auth.ErrLastOwner) // the other cannot sign in
	if err := remove(p.ours.second); err != nil {
		t.Errorf("one of two owners cannot be removed: %v", err)
	}
	wantError(t, remove(p.ours.owner), auth.ErrLastOwner)
}

func TestWhoMayInviteNoLongerHasNoOpenInvitations(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(context.Context, *people, auth.Member) error{
		"removed": func(ctx context.Context, p *people, m auth.Member) error {
			return p.RemoveMember(ctx, p.ours.by, p.ours.tenant, m.Account.ID, rules.AnyVersion, false)
		},
		"demoted": func(ctx context.Context, p *people, m auth.Member) error {
			m.Role = auth.Editor
			_, err := p.ChangeRole(ctx, p.ours.by, m)
			return err
		},
		"disabled": func(ctx context.Context, p *people, m auth.Member) error {
			m.Account.DisabledAt = time.Now()
			_, err := p.UpdateAccount(ctx, p.ours.by, m.Account)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeople(t)
			ctx, second := t.Context(), p.ours.second
			invite := func(token string) error {
				_, err := p.Invite(ctx, second.Account.Actor(), auth.Invitation{
					TenantID: p.ours.tenant, Email: token + "@example.com", Role: auth.Owner, ExpiresAt: tomorrow(),
				}, tokenOf(token))
				return err
			}
			if err := invite("back door"); err != nil {
				t.Fatal(err)
			}
			if err := lose(ctx, p, second); err != nil {
				t.Fatal(err)
			}
			_, err := p.AcceptAsNew(ctx, rules.Actor{}, tokenOf("back door"), auth.Account{}, someHash)
			wantError(t, err, rules.ErrNotFound)
			wantError(t, invite("late"), rules.ErrNotFound)
			if open := must(p.Invitations(ctx, p.ours.tenant, 0, 10))(t); len(open) != 1 ||
				open[0] != p.ours.invitation {
				t.Errorf("the open invitations are %+v, want the first owner's", open)
			}
		})
	}
}

func TestChangesToPeopleAreAuditedInTheirActorsName(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	ctx, tenant, by := t.Context(), p.ours.tenant, p.ours.by
	const earlier = 5 // the tenant, three members and an invitation
	viewer := p.ours.viewer
	viewer.Role = auth.Editor
	must(p.ChangeRole(ctx, by, viewer))(t)
	if err := p.RemoveMember(ctx, by, tenant, viewer.Account.ID, rules.AnyVersion, false); err != nil {
		t.Fatal(err)
	}
	must(p.AddMember(ctx, by, tenant, viewer.Account.ID, auth.Viewer))(t)
	next := must(p.Invite(ctx, by, p.ours.invitation, tokenOf("next")))(t)
	if err := p.RevokeInvitation(ctx, by, tenant, next.ID); err != nil {
		t.Fatal(err)
	}
	last := must(p.Invite(ctx, by, p.ours.invitation, tokenOf("last")))(t)
	joined := must(p.AcceptAsNew(ctx, rules.Actor{RequestID: "r2"}, tokenOf("last"), auth.Account{}, someHash))(t)
	self := joined.Account.Actor()
	self.RequestID = "r2"

	memberOf := func(m auth.Member) auth.AuditObject {
		return auth.AuditObject{Kind: "member", ID: fmt.Sprint(m.Account.ID)}
	}
	invitation := func(i auth.Invitation) auth.AuditObject {
		return auth.AuditObject{Kind: "invitation", ID: fmt.Sprint(i.ID)}
	}
	type change struct {
		by     rules.Actor
		action auth.AuditAction
		object auth.AuditObject
	}
	want := []change{ // the latest first
		{self, auth.AuditCreate, memberOf(joined)},
		{self, auth.AuditUpdate, invitation(last)},
		{by, auth.AuditCreate, invitation(last)},
		{by, auth.AuditRemove, invitation(next)},
		{by, auth.AuditCreate, invitation(next)},
		{by, auth.AuditRemove, invitation(p.ours.invitation)},
		{by, auth.AuditCreate, memberOf(viewer)},
		{by, auth.AuditRemove, memberOf(viewer)},
		{by, auth.AuditUpdate, memberOf(viewer)},
	}
	entries, _, err := p.Audit(ctx, tenant, auth.AuditFilter{}, auth.LogCursor{}, 100)
	if err != nil || len(entries) != len(want)+earlier {
		t.Fatalf("there are %d entries (%v), want %d", len(entries), err, len(want)+earlier)
	}
	for i, entry := range entries[:len(want)] {
		if got := (change{entry.Actor, entry.Action, entry.Object}); got != want[i] {
			t.Errorf("entry %d is %+v, want %+v", i, got, want[i])
		}
		if images := string(entry.Before) + string(entry.After); strings.Contains(images, "token") ||
			strings.Contains(images, `\\x`) {
			t.Errorf("entry %d shows a secret: %s", i, images)
		}
	}
}
