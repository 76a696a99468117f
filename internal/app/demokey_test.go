package app

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestTheDemoKeyIsWarnedOfWhereItIsInForce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tenant := rules.Tenant{ID: 1, Slug: "demo", Settings: rules.DefaultSettings(), Revision: 1}
	for name, test := range map[string]struct {
		command config.Command
		key     auth.Key
		want    int
	}{
		"api":                  {config.API, auth.Key{ID: "demo"}, 1},
		"admin serve":          {config.AdminServe, auth.Key{ID: "demo", ExpiresAt: now.Add(time.Minute)}, 1},
		"sluice dev":           {config.SluiceDev, auth.Key{ID: "demo"}, 0},
		"a revoked one":        {config.API, auth.Key{ID: "demo", Revoked: true}, 0},
		"one that has expired": {config.API, auth.Key{ID: "demo", ExpiresAt: now}, 0},
		"another key":          {config.API, auth.Key{ID: "0123"}, 0},
	} {
		test.key.TenantID, test.key.Revision = tenant.ID, 1
		snapshot := snapshot.New(snapshot.Rows{Tenants: []rules.Tenant{tenant}, Keys: []auth.Key{test.key}})
		if got := demoKeyWarnings(test.command, snapshot, now); len(got) != test.want {
			t.Errorf("%s: the warnings are %q, want %d", name, got, test.want)
		}
	}
	if got := demoKeyWarnings(config.API, nil, now); len(got) != 0 {
		t.Errorf("before rules were loaded: %q", got)
	}
}
