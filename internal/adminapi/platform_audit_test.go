package adminapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestThePlatformsAuditIsPagedTheLatestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.platformAdmin()
	gone := w.tenant("gone")
	w.suspend(&gone)
	promoted := w.account(false)
	w.want(w.send(by, "PATCH", fmt.Sprintf("/api/v1/accounts/%d", promoted.ID), map[string]any{"platform_admin": true},
		"If-Match", "*"), http.StatusOK)
	if err := w.store.ChangePassword(t.Context(), by.account.Actor(), promoted.ID, passwordHash(),
		"another hash"); err != nil {
		t.Fatal(err)
	}
	w.want(w.send(by, "DELETE", "/api/v1/tenants/"+gone.Slug, nil, "If-Match", "*"), http.StatusNoContent)

	type entry struct {
		At     time.Time `json:"at"`
		Action string    `json:"action"`
		Actor  struct {
			ID string `json:"id"`
		} `json:"actor"`
		Object struct {
			Kind string `json:"kind"`
			ID   string `json:"id"`
		} `json:"object"`
		Before map[string]any `json:"before"`
		After  map[string]any `json:"after"`
	}
	type list struct {
		Items []entry `json:"items"`
		Next  *string `json:"next_cursor"`
	}
	get := func(query string) list {
		return read[list](t, w.get(by, "/api/v1/audit"+query))
	}
	all := get("?limit=500").Items
	var paged []entry
	for query := "?limit=3"; ; {
		page := get(query)
		paged = append(paged, page.Items...)
		if page.Next == nil {
			break
		}
		query = "?limit=3&cursor=" + *page.Next
	}
	if fmt.Sprint(paged) != fmt.Sprint(all) {
		t.Errorf("the pages are %v, want %v", paged, all)
	}
	promotedID, admin := fmt.Sprint(promoted.ID), by.account.Actor().ID
	for i, want := range []struct{ action, kind, id, actor string }{
		{"remove", "tenant", gone.Slug, admin},
		{"update", "account", promotedID, admin}, // the password
		{"update", "account", promotedID, admin}, // the promotion
		{"create", "account", promotedID, ""},
		{"update", "tenant", gone.Slug, ""}, // the suspension
		{"create", "tenant", gone.Slug, ""},
	} {
		got := all[i]
		if got.Action != want.action || got.Object.Kind != want.kind || got.Object.ID != want.id ||
			got.Actor.ID != want.actor {
			t.Errorf("entry %d is %+v, want %+v", i, got, want)
		}
	}
	if all[1].After["password_hash_changed"] != true || all[2].Before["is_platform_admin"] != false ||
		all[2].After["is_platform_admin"] != true {
		t.Errorf("the account's changes are %+v and %+v", all[1], all[2])
	}
}
