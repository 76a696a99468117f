package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// fourTiers are the rules that every check over HTTP meets.
const fourTiers = `gateways:
  authorize: {user: {header: X-User, plain: true}}
rules:
  - {key_pattern: "user:{user_id}", rate: 10/second, burst_capacity: 50}
  - {key_pattern: "endpoint:{endpoint}", rate: 1000000/second, burst_capacity: 1000000}
  - {key_pattern: global, rate: 10000000/second, burst_capacity: 10000000}
  - {key_pattern: "ip:{ip}", rate: 200/second, burst_capacity: 1000}
`

// createTenant makes a tenant with the rules of a file, and returns the token of a key that may check and lease.
func createTenant(ctx context.Context, database, slug, file string) (token string, err error) {
	config, err := decodeRules(file)
	if err != nil {
		return "", err
	}
	return createTenantWith(ctx, database, slug, config)
}

func decodeRules(file string) (ruleset.Config, error) {
	return ruleset.Decode(strings.NewReader(file), "rules of the benchmark", nil)
}

func createTenantWith(ctx context.Context, database, slug string, config ruleset.Config) (token string, err error) {
	token, keyID, digest := auth.NewKeyToken()
	return token, withStore(ctx, database, func(store pgstore.Writer) error {
		tenant, err := store.CreateTenant(ctx,
			rules.Tenant{Slug: slug, Name: "Bench", Settings: rules.DefaultSettings()})
		if err != nil {
			return err
		}
		if err := setRules(ctx, store, tenant.ID, config); err != nil {
			return err
		}
		_, err = store.CreateKey(ctx, auth.NamedKey{Name: "bench", Key: auth.Key{
			ID: keyID, TenantID: tenant.ID, Digest: digest,
			Permissions: []auth.Permission{auth.PermissionCheck, auth.PermissionLease},
		}})
		return err
	})
}

func changeRules(ctx context.Context, database, slug, file string) error {
	config, err := decodeRules(file)
	if err != nil {
		return err
	}
	return withStore(ctx, database, func(store pgstore.Writer) error {
		tenant, err := store.TenantBySlug(ctx, slug)
		if err != nil {
			return err
		}
		return setRules(ctx, store, tenant.ID, config)
	})
}

func withStore(ctx context.Context, database string, do func(pgstore.Writer) error) error {
	opened, err := pgstore.Open(ctx, database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer opened.Close()
	return do(opened.As(rules.Actor{Kind: rules.ActorSystem, Name: "bench"}))
}

func setRules(ctx context.Context, store pgstore.Writer, tenant rules.TenantID, desired ruleset.Config) error {
	_, err := store.ChangeConfig(ctx, tenant, func(current ruleset.Config) (ruleset.Changes, error) {
		return ruleset.Diff(current, desired, ruleset.DiffOptions{Now: time.Now()})
	})
	return err
}

type httpRequest struct{ path, token, body string }

func (r httpRequest) bytes() []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", r.path, r.token, len(r.body), r.body)
}

// checkBody is a check at an endpoint that one in twenty users shares.
func checkBody(user, address int) string {
	return fmt.Sprintf(`{"user_id":"%d","endpoint":"/api/%d","method":"GET","ip":%q}`, user, user%20, ipv4(address))
}

func ipv4(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255) }

func singleCheck(token string, user int) httpRequest {
	return httpRequest{"/v1/check", token, checkBody(user, user)}
}

func singleChecks(token string, users int) [][]byte {
	requests := make([][]byte, users)
	for i := range requests {
		requests[i] = singleCheck(token, i).bytes()
	}
	return requests
}

// crowdUsers are so many that each stays far below its limits.
const crowdUsers = 20_000

func crowd(token string) [][]byte { return singleChecks(token, crowdUsers) }

// attack is single checks, nine in ten from ten users far above their limits.
func attack(token string) [][]byte {
	requests := crowd(token)
	for i := range requests {
		if i%10 != 0 {
			requests[i] = singleCheck(token, 1_000_000+i%10).bytes()
		}
	}
	return requests
}

func crowdBatches(token string) [][]byte {
	requests := make([][]byte, crowdUsers/batchSize)
	for i := range requests {
		bodies := make([]string, batchSize)
		for j := range bodies {
			user := i*batchSize + j
			bodies[j] = checkBody(user, user)
		}
		body := `{"checks":[` + strings.Join(bodies, ",") + `]}`
		requests[i] = httpRequest{"/v1/check/batch", token, body}.bytes()
	}
	return requests
}
