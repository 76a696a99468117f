package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestAUserWithMoreThanIsShownSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	for _, have := range []int{500, 501} {
		var file strings.Builder
		file.WriteString("rules:\n")
		for n := range have {
			fmt.Fprintf(&file, "  - {key_pattern: \"user:{user_id}:endpoint:/%d\", rate: 10/second, burst_capacity: 20}\n", n)
		}
		file.WriteString("overrides:\n")
		for n := range have {
			fmt.Fprintf(&file, "  - {rule: {key_pattern: \"user:{user_id}:endpoint:/%d\"}, user_id: many, rate: 20/second, burst_capacity: 40, reason: a test}\n", n)
		}
		yaml := map[string]string{"Content-Type": "application/yaml"}
		w.want(w.do(by, request{"POST", "/api/v1/tenants/acme/import", file.String(), yaml}), http.StatusOK)
		w.refresh()

		user := read[struct {
			Overrides []any `json:"overrides"`
			HasMore   bool  `json:"has_more_overrides"`
		}](t, w.want(w.send(by, "GET", "/api/v1/tenants/acme/users/many", nil), http.StatusOK))
		if len(user.Overrides) != 500 || user.HasMore != (have > 500) {
			t.Errorf("of %d overrides %d are shown, and that there are more: %v", have, len(user.Overrides), user.HasMore)
		}
		buckets := read[struct {
			Items   []any `json:"items"`
			HasMore bool  `json:"has_more"`
		}](t, w.want(w.send(by, "GET", "/api/v1/tenants/acme/users/many/buckets", nil), http.StatusOK))
		if len(buckets.Items) != 500 || buckets.HasMore != (have > 500) {
			t.Errorf("of %d buckets %d are shown, and that there are more: %v", have, len(buckets.Items), buckets.HasMore)
		}
	}
}
