package adminapi_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestTheStoryOfAUserIsOneOrderInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Editor), lately().Truncate(time.Hour)
	one, other := w.rule(w.acme), w.rule(w.acme)
	w.violate(denied(w.other, at, func(v *violations.Violation) { v.Count = 1000 }))
	w.violate(
		denied(w.acme, at, func(v *violations.Violation) { v.Rule, v.Count = one.ID, 5 }),
		denied(w.acme, at.Add(time.Minute),
			func(v *violations.Violation) { v.Rule, v.Count, v.Mode = other.ID, 6, rules.ModeShadow }),
		denied(w.acme, at.Add(-time.Hour), func(v *violations.Violation) { v.Rule = one.ID }),
		denied(w.acme, at, func(v *violations.Violation) { v.UserID, v.Subject = "7", "7" }),
	)
	plan := w.plan(w.acme)
	w.want(w.send(by, "PUT", "/api/v1/tenants/acme/users/42/plan", map[string]any{"plan": plan}, "If-Match", "*"),
		http.StatusOK)
	w.want(w.send(by, "PUT", "/api/v1/tenants/acme/users/7/plan", map[string]any{"plan": plan}, "If-Match", "*"),
		http.StatusOK)
	path := "/api/v1/tenants/acme/users/42/story?from=" + stamp(at.Add(-time.Hour))
	type story struct {
		Items []struct {
			Denials *struct {
				RuleID int64  `json:"rule_id,string"`
				Denied int64  `json:"denied"`
				Mode   string `json:"mode"`
				Rule   *struct {
					RuleID int64 `json:"rule_id,string"`
				} `json:"rule"`
			} `json:"denials"`
			Entry *struct {
				Object struct {
					Kind string `json:"kind"`
					ID   string `json:"id"`
				} `json:"object"`
			} `json:"entry"`
		} `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}
	want := []string{
		"user 42", fmt.Sprintf("%d 5 enforce", one.ID), fmt.Sprintf("%d 6 shadow", other.ID),
		fmt.Sprintf("%d 1 enforce", one.ID),
	}
	for limit := 1; limit <= 5; limit++ {
		var got []string
		for cursor := ""; ; {
			page := read[story](t, w.get(by, fmt.Sprintf("%s&limit=%d%s", path, limit, cursor)))
			for _, item := range page.Items {
				if item.Entry != nil {
					got = append(got, item.Entry.Object.Kind+" "+item.Entry.Object.ID)
					continue
				}
				d := item.Denials
				got = append(got, fmt.Sprintf("%d %d %s", d.RuleID, d.Denied, d.Mode))
				if d.Rule == nil || d.Rule.RuleID != d.RuleID {
					t.Errorf("the rule of %+v is not named", d)
				}
			}
			if page.NextCursor == nil || len(got) > 10 {
				break
			}
			cursor = "&cursor=" + *page.NextCursor
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d the story is %v, want %v", limit, got, want)
		}
	}
	w.want(w.send(by, "GET", path+"&cursor=x", nil), http.StatusBadRequest)
	// A page reads again the moments of its time that were shown, so a cursor must not claim too many.
	for shown, status := range map[string]int{
		"0": http.StatusOK, "10000": http.StatusOK, "10001": http.StatusBadRequest, "2000000000": http.StatusBadRequest,
		"9223372036854775807": http.StatusBadRequest, "-1": http.StatusBadRequest, "-100": http.StatusBadRequest,
	} {
		place := fmt.Sprintf(`{"At":%q,"Shown":%s}`, time.Now().UTC().Format(time.RFC3339Nano), shown)
		address := must(url.Parse(path))(t)
		sum := sha256.Sum256([]byte(address.EscapedPath() + "?" + address.Query().Encode() + "\n" + place))
		cursor := base64.RawURLEncoding.EncodeToString(append(append([]byte{2}, sum[:8]...), place...))
		if got := w.send(by, "GET", path+"&cursor="+cursor, nil); got.status != status {
			t.Errorf("a cursor after %s moments is answered %d, want %d: %s", shown, got.status, status, got.body)
		}
	}
}

func TestARuleEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	type rule struct {
		RuleID    int64   `json:"rule_id,string"`
		ExpiresAt *string `json:"expires_at"`
	}
	const body = `{"key_pattern":"ip:203.0.113.9","name":"temporary","action":"block",
		"expires_at":"2099-01-02T03:04:05Z"}`
	made := read[rule](t, w.want(w.send(by, "POST", "/api/v1/tenants/acme/rules", json.RawMessage(body)),
		http.StatusCreated))
	if made.ExpiresAt == nil || *made.ExpiresAt != "2099-01-02T03:04:05Z" {
		t.Fatalf("the new rule ends at %v", made.ExpiresAt)
	}
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", made.RuleID)
	for body, want := range map[string]string{
		`{"description":"x"}`:                           "2099-01-02T03:04:05Z",
		`{"expires_at":"2020-01-01T00:00:00Z"}`:         "2020-01-01T00:00:00Z", // ends it
		`{"expires_at":null}`:                           "",
		`{"expires_at":"0001-01-01T00:00:00Z"}`:         "refused",
		`{"expires_at":"2099-01-01T00:00:00.1234567Z"}`: "refused",
	} {
		w.want(w.send(by, "PATCH", path, map[string]any{"expires_at": "2099-01-02T03:04:05Z"}, "If-Match", "*"),
			http.StatusOK)
		if want == "refused" {
			got := w.want(w.send(by, "PATCH", path, json.RawMessage(body), "If-Match", "*"), http.StatusBadRequest)
			if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/expires_at"}) {
				t.Errorf("%s points at %v", body, pointers)
			}
			continue
		}
		got := read[rule](t, w.want(w.send(by, "PATCH", path, json.RawMessage(body), "If-Match", "*"), http.StatusOK))
		end := ""
		if got.ExpiresAt != nil {
			end = *got.ExpiresAt
		}
		if end != want {
			t.Errorf("after %s the rule ends at %q, want %q", body, end, want)
		}
	}
}

func TestARulesDurationIsCountedByTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) { c.Now = func() time.Time { return time.Now().Add(10 * time.Minute) } })
	by := w.person(w.acme, auth.Editor)
	type rule struct {
		RuleID    int64     `json:"rule_id,string"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	const rulesPath = "/api/v1/tenants/acme/rules"
	var path string
	for _, test := range []struct {
		method, body string
		status       int
		length       time.Duration
	}{
		{
			"POST", `{"key_pattern":"ip:203.0.113.9","name":"temporary","action":"block","expires_in_seconds":3600}`,
			http.StatusCreated, time.Hour,
		},
		{"PATCH", `{"expires_in_seconds":900}`, http.StatusOK, 15 * time.Minute},
		{"PATCH", `{"expires_in_seconds":0}`, http.StatusOK, 0},
	} {
		before := time.Now().Truncate(time.Microsecond) // the database runs on this machine
		at := cmp.Or(path, rulesPath)
		var header []string
		if test.method == "PATCH" {
			header = []string{"If-Match", "*"}
		}
		got := read[rule](t, w.want(w.send(by, test.method, at, json.RawMessage(test.body), header...), test.status))
		path = fmt.Sprintf("%s/%d", rulesPath, got.RuleID)
		if end := got.ExpiresAt.Add(-test.length); end.Before(before) || end.After(time.Now()) {
			t.Errorf("after %s at %s the rule ends at %s", test.body, before, got.ExpiresAt)
		}
	}
	for _, body := range []string{
		`{"expires_in_seconds":60,"expires_at":"2099-01-02T03:04:05Z"}`, `{"expires_in_seconds":60,"expires_at":null}`,
		`{"expires_in_seconds":-1}`, `{"expires_in_seconds":34560001}`,
	} {
		got := w.want(w.send(by, "PATCH", path, json.RawMessage(body), "If-Match", "*"), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/expires_in_seconds"}) {
			t.Errorf("%s points at %v", body, pointers)
		}
	}
}
