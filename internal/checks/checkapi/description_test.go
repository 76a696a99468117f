package checkapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicegate/sluice/api"
	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestRoutesAndDescriptionAreTheSame(t *testing.T) {
	t.Parallel()
	described := map[string]bool{}
	for path, item := range describe(t).Paths.Map() {
		for method, o := range item.Operations() {
			if o.Tags[0] == "check" || o.Tags[0] == "health" {
				described[method+" "+path] = true
			}
		}
	}
	served := map[string]bool{}
	for _, route := range checkapi.Routes() {
		served[route] = true
	}
	if !maps.Equal(described, served) {
		t.Errorf("openapi.yaml has\n%q\nthe surface has\n%q", slices.Sorted(maps.Keys(described)),
			slices.Sorted(maps.Keys(served)))
	}
}

func describe(t testing.TB) *openapi3.T {
	t.Helper()
	description := must(openapi3.NewLoader().LoadFromData(api.Description))(t)
	return description
}

func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	own := []rules.Rule{limit(t, 1, "user:{user_id}", 1, 2)}
	for name, test := range map[string]struct {
		key, path, body string
		status          int
	}{
		"allowed":         {fullKey, "/v1/check", `{"user_id":"1"}`, http.StatusOK},
		"nothing matched": {fullKey, "/v1/check", `{}`, http.StatusOK},
		"denied":          {fullKey, "/v1/check", `{"user_id":"1","cost":3}`, http.StatusTooManyRequests},
		"a batch": {
			fullKey, "/v1/check/batch", `{"checks":[{"user_id":1},{"user_id":"1","cost":3}]}`,
			http.StatusOK,
		},
		"an explanation": {fullKey, "/v1/explain", `{"user_id":"1"}`, http.StatusOK},
		"a near miss":    {fullKey, "/v1/explain", `{}`, http.StatusOK},
		"a bad field":    {fullKey, "/v1/check", `{"user":1}`, http.StatusBadRequest},
		"usage":          {fullKey, "/v1/usage?user_id=1", ``, http.StatusOK},
		"nobody's usage": {fullKey, "/v1/usage", ``, http.StatusBadRequest},
		"no key":         {"", "/v1/check", `{}`, http.StatusUnauthorized},
		"a weak key":     {"slk_manage_" + secret, "/v1/check", `{}`, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings(), own...)
			path, _, _ := strings.Cut(test.path, "?")
			operation, got := describe(t).Paths.Value(path).Post, (*httptest.ResponseRecorder)(nil)
			if operation == nil {
				operation, got = describe(t).Paths.Value(path).Get, h.getAs(test.key, test.path)
			} else {
				got = h.postAs(test.key, test.path, test.body)
			}
			if got.Code != test.status {
				t.Fatalf("answered %d, want %d: %s", got.Code, test.status, got.Body)
			}
			var body any
			if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			described := operation.Responses.Status(got.Code)
			content := described.Value.Content.Get(header(got, "Content-Type"))
			if content == nil {
				t.Fatalf("openapi.yaml has no answer %d as %s", got.Code, header(got, "Content-Type"))
			}
			if err := content.Schema.Value.VisitJSON(body, openapi3.MultiErrors()); err != nil {
				t.Errorf("%s is not as openapi.yaml says: %v", got.Body, err)
			}
		})
	}
}
