package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
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

// createTenant makes a tenant with the four rules and returns the token of its key.
func createTenant(ctx context.Context, database string) (token string, err error) {
	return createTenantOf(ctx, database, "bench", fourTiers)
}

func createTenantOf(ctx context.Context, database, slug, config string) (token string, err error) {
	return createTenantAs(ctx, database, rules.Tenant{Slug: slug, Name: "Bench", Settings: rules.DefaultSettings()},
		config, auth.PermissionCheck)
}

// createTenantAs makes a tenant with the rules of a configuration, and returns the token of its key.
func createTenantAs(ctx context.Context, database string, wanted rules.Tenant, config string,
	permissions ...auth.Permission,
) (token string, err error) {
	opened, err := pgstore.Open(ctx, database, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer opened.Close()
	store := opened.As(rules.Actor{Kind: rules.ActorSystem, Name: "bench"})
	tenant, err := store.CreateTenant(ctx, wanted)
	if err != nil {
		return "", err
	}
	desired, err := ruleset.Decode(bytes.NewReader([]byte(config)), "four tiers", nil)
	if err != nil {
		return "", err
	}
	_, err = store.ChangeConfig(ctx, tenant.ID, func(current ruleset.Config) (ruleset.Changes, error) {
		return ruleset.Diff(current, desired, ruleset.DiffOptions{Now: time.Now()})
	})
	if err != nil {
		return "", err
	}
	token, keyID, digest := auth.NewKeyToken()
	_, err = store.CreateKey(ctx, auth.NamedKey{Name: "bench", Key: auth.Key{
		ID: keyID, TenantID: tenant.ID, Digest: digest, Permissions: permissions,
	}})
	return token, err
}

// httpRequest is one request of a caller.
type httpRequest struct{ path, token, body string }

func (r httpRequest) bytes() []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", r.path, r.token, len(r.body), r.body)
}

// checkBody is the question of one user: an address of its own, an endpoint that it shares with others.
func checkBody(user int) string {
	return fmt.Sprintf(`{"user_id":"%d","endpoint":"/api/%d","method":"GET","ip":"10.%d.%d.%d"}`,
		user, user%20, user>>16&255, user>>8&255, user&255)
}

func singleCheck(token string, user int) httpRequest {
	return httpRequest{"/v1/check", token, checkBody(user)}
}

// crowd is single checks of so many users that each stays far below its limits.
func crowd(token string) [][]byte {
	requests := make([][]byte, 20_000)
	for i := range requests {
		requests[i] = singleCheck(token, i).bytes()
	}
	return requests
}

// attack is single checks of which nine in ten come from ten users far above their limits.
func attack(token string) [][]byte {
	requests := crowd(token)
	for i := range requests {
		if i%10 != 0 {
			requests[i] = singleCheck(token, 1_000_000+i%10).bytes()
		}
	}
	return requests
}

// crowdBatches is the crowd's checks, some at a time.
func crowdBatches(token string, size int) [][]byte {
	requests := make([][]byte, 20_000/size)
	for i := range requests {
		body := []byte(`{"checks":[`)
		for j := range size {
			if j > 0 {
				body = append(body, ',')
			}
			body = append(body, checkBody(i*size+j)...)
		}
		requests[i] = httpRequest{"/v1/check/batch", token, string(append(body, `]}`...))}.bytes()
	}
	return requests
}
