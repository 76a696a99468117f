package pgstore_test

import (
	"errors"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func authorizeBy(tenant rules.TenantID, header string) rules.Gateway {
	return rules.Gateway{TenantID: tenant, Kind: rules.GatewayAuthorize, Document: `{"user":{"header":"` + header +
		`"}}`}
}

func TestAMappingIsKeptByKind(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	first := must(w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-A"), rules.NoneStored))(t)
	if _, err := w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-B"), rules.NoneStored); !errors.Is(err, rules.ErrChanged) {
		t.Errorf("a second first one: %v", err)
	}
	same := must(w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-A"), rules.Expected(first.Revision)))(t)
	if same.Revision != first.Revision {
		t.Errorf("the same mapping has revision %d, want %d", same.Revision, first.Revision)
	}
	second := must(w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-B"), rules.Expected(first.Revision)))(t)
	if _, err := w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-C"), rules.Expected(first.Revision)); !errors.Is(err,
		rules.ErrChanged) {
		t.Errorf("a lost race: %v", err)
	}
	stored := must(w.Gateways(ctx, w.ours.ID))(t)
	if len(stored) != 1 || stored[0] != second || must(w.Gateway(ctx, w.ours.ID, rules.GatewayAuthorize))(t) != second {
		t.Errorf("stored is %+v, want %+v", stored, second)
	}
	if err := w.RemoveGateway(ctx, w.ours.ID, rules.GatewayAuthorize, rules.Expected(second.Revision)); err != nil {
		t.Error(err)
	}
	if _, err := w.Gateway(ctx, w.ours.ID, rules.GatewayAuthorize); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a removed one: %v", err)
	}
}

func TestAChangedMappingReachesASnapshotAndCanBeUndone(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), t.Context()
	watcher := snapshot.NewWatcher(w.Store, snapshot.WatcherOptions{})
	header := func() string {
		t.Helper()
		if err := watcher.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		mapping := must(watcher.Snapshot().Tenant(w.ours.ID).Authorize())(t)
		if mapping.Document().User == nil {
			return ""
		}
		return mapping.Document().User.Header
	}
	undo := func() {
		t.Helper()
		entries, _, err := w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "gateway", ObjectID: "authorize"},
			auth.LogCursor{}, 1)
		if err != nil || len(entries) != 1 {
			t.Fatalf("the audit log has %v, %v", entries, err)
		}
		must(w.Revert(ctx, w.ours.ID, entries[0].ID, false))(t)
	}
	want := func(what, want string) {
		t.Helper()
		if got := header(); got != want {
			t.Errorf("%s: the snapshot maps %q, want %q", what, got, want)
		}
	}
	want("at first", "")
	must(w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-A"), rules.AnyVersion))(t)
	want("created", "X-A")
	must(w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-B"), rules.AnyVersion))(t)
	want("changed", "X-B")
	undo()
	want("the change undone", "X-A")
	if err := w.RemoveGateway(ctx, w.ours.ID, rules.GatewayAuthorize, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	want("removed", "")
	undo()
	want("the removal undone", "X-A")
	undo()
	want("the creation undone", "")
}
