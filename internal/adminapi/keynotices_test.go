package adminapi_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
	"github.com/sluicegate/sluice/internal/rules"
)

const aDay = 24 * time.Hour

func (w *world) keyWatch(byMail bool) *auth.KeyWatch {
	return auth.NewKeyWatch(w.store, w.access, byMail, slog.New(slog.NewTextHandler(&w.log, nil)))
}

func (w *world) keyBy(tenant rules.Tenant, by auth.Account, made time.Time, life time.Duration) (id string) {
	w.t.Helper()
	id, _ = w.key(tenant, auth.PermissionCheck)
	w.exec(`UPDATE api_key SET created_by_kind = 'account', created_by_id = $2, created_by_name = $3, created_at = $4,
		expires_at = nullif($5::timestamptz, $4) WHERE key_id = $1`, id, fmt.Sprint(by.ID), by.Email, made,
		made.Add(life))
	return id
}

func (w *world) recipients(server *smtptest.Server, office *auth.PostOffice, seen *int) (to []string,
	sent []smtptest.Message,
) {
	w.t.Helper()
	w.deliver(office)
	sent = server.Messages()[*seen:]
	*seen += len(sent)
	for _, message := range sent {
		to = append(to, message.To)
	}
	slices.Sort(to)
	return to, sent
}

func TestOwnersAreRemindedOfKeysThatExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	office, watch := w.postOffice(server), w.keyWatch(true)
	owner, creator, viewer := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Editor), w.person(w.acme, auth.Viewer)
	disabled, admin, other := w.person(w.acme, auth.Owner), w.platformAdmin(), w.person(w.other, auth.Owner)
	w.exec("UPDATE account SET disabled_at = now() WHERE account_id = $1", disabled.account.ID)
	today := time.Now().UTC().Truncate(aDay)
	expires := today.Add(20*aDay + 12*time.Hour)
	first := w.keyBy(w.acme, creator.account, today.Add(-60*aDay), 80*aDay+12*time.Hour)
	w.keyBy(w.acme, viewer.account, today.Add(11*aDay+12*time.Hour), 9*aDay) // that was made for 9 days
	revoked := w.keyBy(w.acme, viewer.account, today.Add(-60*aDay), 80*aDay)
	if err := w.system().RevokeKey(w.ctx(), w.acme.ID, revoked, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	w.keyBy(w.acme, viewer.account, today.Add(-60*aDay), 0) // that never expires
	service, _ := w.newServiceKey(auth.PermissionRead)
	w.exec("UPDATE service_key SET created_at = $1, expires_at = $2", today.Add(-60*aDay), expires)

	seen, got := 0, map[int][]string{}
	for day := range 23 {
		for _, hour := range []time.Duration{9 * time.Hour, 10 * time.Hour} { // once a day
			if err := watch.Expiring(w.ctx(), today.Add(time.Duration(day)*aDay+hour)); err != nil {
				t.Fatal(err)
			}
		}
		to, sent := w.recipients(server, office, &seen)
		if len(to) > 0 {
			got[day] = to
		}
		for _, message := range sent {
			id, page := first, loopback+"/t/acme/settings/keys"
			if message.To == admin.account.Email {
				id, page = service, loopback+"/platform/service-keys"
			}
			if !strings.Contains(message.Plain, id) ||
				!strings.Contains(message.Plain, expires.Format("2 January 2006")) ||
				!strings.Contains(message.Plain, page) || strings.Contains(message.Plain, revoked) ||
				strings.Contains(message.Plain, "slk_") {
				t.Errorf("on day %d %s is told %q:\n%s", day, message.To, message.Subject, message.Plain)
			}
			if want := map[bool]string{
				true:  "2 API keys of acme expire soon",
				false: "An API key of acme expires soon",
			}[day != 6]; message.To == owner.account.Email &&
				message.Subject != want {
				t.Errorf("on day %d the subject is %q, want %q", day, message.Subject, want)
			}
		}
	}
	sorted := func(people ...caller) (to []string) {
		for _, person := range people {
			to = append(to, person.account.Email)
		}
		slices.Sort(to)
		return to
	}
	want := map[int][]string{
		6: sorted(owner, creator, admin), 13: sorted(owner, creator, viewer, admin),
		19: sorted(owner, creator, viewer, admin),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("reminded are, by day, %v, want %v; not %s and not %s", got, want, disabled.account.Email,
			other.account.Email)
	}
	w.wantNoSecrets()
}

func TestOwnersAreToldOfTheKeysOfThoseWhoLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := smtptest.New(t, smtptest.Options{})
	office, watch := w.postOffice(server), w.keyWatch(true)
	owner, admin := w.person(w.acme, auth.Owner), w.platformAdmin()
	w.person(w.other, auth.Owner)
	now := time.Now()
	ways := map[string]func(caller){
		"removed": func(leaver caller) {
			w.want(w.send(owner, "DELETE", fmt.Sprintf("/api/v1/tenants/acme/members/%d", leaver.account.ID), nil,
				"If-Match", "*"), http.StatusNoContent)
		},
		"disabled": func(leaver caller) {
			w.want(w.send(admin, "PATCH", fmt.Sprintf("/api/v1/accounts/%d", leaver.account.ID),
				map[string]any{"disabled": true}, "If-Match", "*"), http.StatusOK)
		},
		"without the group": func(leaver caller) {
			w.exec("UPDATE member SET granted_by = 'idp' WHERE account_id = $1", leaver.account.ID)
			granted := auth.GrantedRole{Tenant: w.acme.ID, Issuer: "idp"}
			if err := w.store.GrantRole(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, leaver.account.ID,
				granted); err != nil {
				t.Fatal(err)
			}
		},
	}
	seen := 0
	for way, leave := range ways {
		leaver := w.person(w.acme, auth.Editor)
		key := w.keyBy(w.acme, leaver.account, now.Add(-aDay), 0)
		ended := w.keyBy(w.acme, leaver.account, now.Add(-2*aDay), aDay)
		if err := watch.KeysLeft(w.ctx(), now); err != nil {
			t.Fatal(err)
		}
		if to, _ := w.recipients(server, office, &seen); len(to) > 0 {
			t.Errorf("before anybody has left %v are told", to)
		}
		path := "/api/v1/tenants/acme/api-keys/" + key
		w.want(w.send(owner, "POST", path+"/keep", nil, "If-Match", "*"), http.StatusConflict)
		leave(leaver)
		for range 2 { // they are told once
			if err := watch.KeysLeft(w.ctx(), now); err != nil {
				t.Fatal(err)
			}
		}
		to, sent := w.recipients(server, office, &seen)
		if !slices.Equal(to, []string{owner.account.Email}) || !strings.Contains(sent[0].Plain, key) ||
			!strings.Contains(sent[0].Plain, leaver.account.Email) ||
			strings.Contains(sent[0].Plain, ended) ||
			sent[0].Subject != "An API key of acme was made by somebody who has left" {
			t.Errorf("%s: told are %v: %+v", way, to, sent)
		}
		log := w.get(owner, "/api/v1/tenants/acme/security-log?kind=key_left_behind")
		if strings.Count(log.body, key) != 1 || !strings.Contains(log.body, leaver.account.Email) ||
			strings.Contains(log.body, ended) {
			t.Errorf("%s: the security log has %s", way, log.body)
		}
		if got := w.get(owner, path); !strings.Contains(got.body,
			`"creator_left":true`) || !strings.Contains(got.body, `"kept_at":null`) {
			t.Errorf("%s: the key is %s", way, got.body)
		}
		kept := w.want(w.send(owner, "POST", path+"/keep", nil, "If-Match", "*"), http.StatusOK)
		if strings.Contains(kept.body, `"kept_at":null`) {
			t.Errorf("%s: the key is kept as %s", way, kept.body)
		}
		audit := w.get(owner, "/api/v1/tenants/acme/audit?object_kind=api_key&object_id="+key+"&limit=1")
		if !strings.Contains(audit.body, `"act":"keep"`) {
			t.Errorf("%s: the audit log ends with %s", way, audit.body)
		}
		w.want(w.send(owner, "POST", path+"/revoke", nil, "If-Match", kept.header.Get("ETag")), http.StatusOK)
		w.want(w.send(owner, "POST", path+"/keep", nil, "If-Match", "*"), http.StatusConflict)
	}
	w.wantNoSecrets()
}

func TestWithoutMailALeaversKeysAreInTheSecurityLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, leaver := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Editor)
	w.keyBy(w.acme, leaver.account, time.Now(), 0)
	entries := func() int {
		t.Helper()
		if err := w.keyWatch(false).KeysLeft(w.ctx(), time.Now()); err != nil {
			t.Fatal(err)
		}
		log := w.get(owner, "/api/v1/tenants/acme/security-log?kind=key_left_behind")
		return strings.Count(log.body, "key_left_behind")
	}
	w.exec("DELETE FROM member WHERE account_id = $1", leaver.account.ID)
	entries()
	w.member(w.acme, leaver.account, auth.Viewer)
	entries()
	w.exec("DELETE FROM member WHERE account_id = $1", leaver.account.ID)
	if got := entries(); got != 2 { // the member who came back leaves again
		t.Errorf("the security log has %d entries, want 2", got)
	}
	if n := w.count("SELECT count(*) FROM mail"); n != 0 {
		t.Errorf("%d messages were queued", n)
	}
}

func TestServiceKeysOfThoseWhoLeaveCanBeKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, leaver := w.platformAdmin(), w.platformAdmin()
	key := func() (id, path string) {
		id, _ = w.newServiceKey(auth.PermissionRead)
		w.exec("UPDATE service_key SET created_by_kind = 'account', created_by_id = $2, created_by_name = $3 WHERE "+
			"key_id = $1",
			id, fmt.Sprint(leaver.account.ID), leaver.account.Email)
		return id, "/api/v1/service-keys/" + id
	}
	kept, keptPath := key()
	other, otherPath := key()
	told := func() (ids []string) {
		t.Helper()
		if err := w.keyWatch(false).KeysLeft(w.ctx(), time.Now()); err != nil {
			t.Fatal(err)
		}
		log := w.get(admin, "/api/v1/security-log?kind=key_left_behind")
		for _, id := range []string{kept, other} {
			for range strings.Count(log.body, id) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	leave := func(gone bool) {
		w.exec("UPDATE account SET is_platform_admin = $2 WHERE account_id = $1", leaver.account.ID, !gone)
	}
	w.want(w.send(admin, "POST", keptPath+"/keep", nil, "If-Match", "*"), http.StatusConflict)
	leave(true)
	w.want(w.send(admin, "POST", keptPath+"/keep", nil, "If-Match", `"99"`), http.StatusPreconditionFailed)
	answer := w.want(w.send(admin, "POST", keptPath+"/keep", nil, "If-Match", "*"), http.StatusOK)
	if strings.Contains(answer.body, `"kept_at":null`) || !strings.Contains(answer.body, `"creator_left":true`) {
		t.Errorf("it is kept as %s", answer.body)
	}
	if got := told(); !slices.Equal(got, []string{other}) {
		t.Errorf("told of are %v, want %s alone", got, other)
	}
	leave(false)
	told()
	leave(true)
	if got := told(); !slices.Equal(got, []string{other, other}) {
		t.Errorf("after the creator was back told of are %v, want %s twice", got, other)
	}
	log := w.get(admin, "/api/v1/audit")
	if !strings.Contains(log.body, `"act":"keep"`) {
		t.Errorf("the platform's log is %s", log.body)
	}
	w.want(w.send(admin, "POST", otherPath+"/revoke", nil, "If-Match", "*"), http.StatusOK)
	w.want(w.send(admin, "POST", otherPath+"/keep", nil, "If-Match", "*"), http.StatusConflict)
	w.wantNoSecrets()
}
