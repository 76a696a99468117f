package checkapi_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestOnlyKeysInForceWithThePermissionAreAnswered(t *testing.T) {
	t.Parallel()
	const ok, unauthorized, forbidden, suspended = "", "unauthorized", "forbidden", "tenant-suspended"
	tests := map[string]struct {
		authorization  []string
		later          time.Duration
		check, explain string // the problem's type
	}{
		"no header":       {nil, 0, unauthorized, unauthorized},
		"an empty header": {[]string{""}, 0, unauthorized, unauthorized},
		"another scheme":  {[]string{"Basic " + fullKey}, 0, unauthorized, unauthorized},
		"two headers": {
			[]string{"Bearer " + fullKey, "Bearer " + fullKey},
			0, unauthorized,
			unauthorized,
		},
		"no secret":       {[]string{"Bearer slk_full"}, 0, unauthorized, unauthorized},
		"an empty secret": {[]string{"Bearer slk_full_"}, 0, unauthorized, unauthorized},
		"no key id":       {[]string{"Bearer slk__" + secret}, 0, unauthorized, unauthorized},
		"another prefix":  {[]string{"Bearer sk_full_" + secret}, 0, unauthorized, unauthorized},
		"a wrong secret": {
			[]string{"Bearer slk_full_1" + secret[1:]},
			0, unauthorized,
			unauthorized,
		},
		"more than the secret":           {[]string{"Bearer " + fullKey + "0"}, 0, unauthorized, unauthorized},
		"an unknown key":                 {[]string{"Bearer slk_nobody_" + secret}, 0, unauthorized, unauthorized},
		"a key of a tenant that is gone": {[]string{"Bearer slk_orphan_" + secret}, 0, unauthorized, unauthorized},
		"a revoked key":                  {[]string{"Bearer slk_revoked_" + secret}, 0, unauthorized, unauthorized},
		"a key just before it expires":   {[]string{"Bearer slk_expired_" + secret}, time.Second - 1, ok, forbidden},
		"a key as it expires": {
			[]string{"Bearer slk_expired_" + secret},
			time.Second, unauthorized,
			unauthorized,
		},
		"a suspended tenant":                {[]string{"Bearer slk_suspended_" + secret}, 0, suspended, suspended},
		"a key that may check":              {[]string{"Bearer slk_check_" + secret}, 0, ok, forbidden},
		"a key that may explain":            {[]string{"Bearer slk_explain_" + secret}, 0, forbidden, ok},
		"a key that may manage":             {[]string{"Bearer slk_manage_" + secret}, 0, forbidden, forbidden},
		"a key that may both":               {[]string{"Bearer " + fullKey}, 0, ok, ok},
		"the scheme in lower case":          {[]string{"bearer " + fullKey}, 0, ok, ok},
		"more than one space in the middle": {[]string{"Bearer   " + fullKey}, 0, ok, ok},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			h.now = h.now.Add(test.later)
			for path, want := range map[string]string{
				"/v1/check": test.check, "/v1/check/batch": test.check,
				"/v1/explain": test.explain,
			} {
				body := `{}`
				if path == "/v1/check/batch" {
					body = `{"checks":[{}]}`
				}
				w := h.send("POST", path, http.Header{"Content-Type": {jsonType}, "Authorization": test.authorization},
					body)
				status := map[string]int{ok: 200, unauthorized: 401, forbidden: 403, suspended: 403}[want]
				if w.Code != status || want != ok &&
					!strings.Contains(w.Body.String(), `"urn:sluice:problem:`+want+`"`) {
					t.Errorf("%s is answered %d %s, want %d %s", path, w.Code, w.Body, status, want)
				}
				if challenged := w.Header().Get("WWW-Authenticate") != ""; challenged != (status == 401) {
					t.Errorf("%s: WWW-Authenticate is %q with %d", path, w.Header().Get("WWW-Authenticate"), w.Code)
				}
				if strings.Contains(w.Body.String(), secret[1:]) {
					t.Errorf("%s tells a secret: %s", path, w.Body)
				}
			}
		})
	}
}

func TestAWrongSecretAndAnUnknownKeyCannotBeToldApart(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	trim := func(key string) string {
		before, after, _ := strings.Cut(h.postAs(key, "/v1/check", `{}`).Body.String(), `"request_id":"`)
		return before + strings.TrimLeft(after, "0123456789abcdef")
	}
	want := trim("slk_nobody_" + secret)
	for _, id := range []string{"full", "revoked", "expired", "suspended"} {
		if got := trim("slk_" + id + "_wrong"); got != want {
			t.Errorf("a wrong secret of %s is answered %s, an unknown key %s", id, got, want)
		}
	}
}

func TestWithoutRulesEveryQuestionIs503(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.snapshot = nil
	for _, path := range []string{"/v1/check", "/v1/check/batch", "/v1/explain"} {
		w := h.postAs("", path, `{}`)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" ||
			!strings.Contains(w.Body.String(), "urn:sluice:problem:unavailable") {
			t.Errorf("%s is answered %d, Retry-After %q, %s", path, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
}

func TestOnlyAKeyThatProvesItselfIsNotedAsUsed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for _, token := range []string{
		"slk_full_1" + secret[1:], "slk_revoked_" + secret, "slk_manage_" + secret,
		fullKey,
	} {
		h.postAs(token, "/v1/check", `{}`)
	}
	if want := []string{"manage", "full"}; !slices.Equal(h.keysUsed, want) {
		t.Errorf("the keys %q were used, want %q", h.keysUsed, want)
	}
}

func TestAKeyIsUsedFromItsNetworksOnly(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		networks, trusted, forwarded string
		want                         int
	}{
		"from a network of the key":                   {"127.0.0.0/8", "", "", 200},
		"from elsewhere":                              {"203.0.113.0/24", "", "", 403},
		"a header that anybody can send":              {"203.0.113.0/24", "", "203.0.113.9", 403},
		"behind a trusted proxy":                      {"203.0.113.0/24", "127.0.0.1/32", "6.6.6.6, 203.0.113.9", 200},
		"behind a trusted proxy, from elsewhere":      {"203.0.113.0/24", "127.0.0.1/32", "203.0.113.9, 6.6.6.6", 403},
		"a proxy of a list's network is not a client": {"127.0.0.0/8", "127.0.0.1/32", "6.6.6.6", 403},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			h.config.TrustedProxies, _ = auth.ParseNetworks(strings.Fields(test.trusted))
			key := auth.Key{
				ID: "there", TenantID: 1, Digest: auth.DigestSecret(secret),
				Permissions: []auth.Permission{auth.PermissionCheck},
			}
			key.Networks, _ = auth.ParseNetworks([]string{test.networks})
			h.snapshot = snapshot.New(snapshot.Rows{
				Tenants: []rules.Tenant{{ID: 1, Slug: "one", Settings: rules.DefaultSettings()}}, Keys: []auth.Key{key},
			})
			listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
			h.run(checkapi.NewServer(h.config), listener)
			request := must(http.NewRequestWithContext(t.Context(), "POST",
				"http://"+listener.Addr().String()+"/v1/check", strings.NewReader("{}")))(t)
			request.Header.Set("Content-Type", jsonType)
			request.Header.Set("Authorization", "Bearer slk_there_"+secret)
			request.Header.Set("X-Forwarded-For", test.forwarded)
			request.Close = true
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != test.want {
				t.Errorf("it is answered %d, want %d", answer.StatusCode, test.want)
			}
		})
	}
}
