package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const fourDescriptors = `domain: bench
descriptors:
  - {key: user_id, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
  - {key: generic_key, value: all, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
`

func overGRPC(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		token, err := createEnvoyTenant(ctx, f.database)
		if err != nil {
			return nil, err
		}
		sluice, err := f.startAPI(ctx, f.database, f.redis.URL(), "SLUICE_GRPC_ADDR=127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		if err := f.build(ctx, ".", "./grpcdesigns"); err != nil {
			return nil, err
		}
		designs := filepath.Join(f.dir, "grpcdesigns")
		empty, err := f.start(exec.CommandContext(ctx, designs, "empty"), noopListens)
		if err != nil {
			return nil, err
		}
		incrby, err := f.start(exec.CommandContext(ctx, designs, "incrby", f.redis.URL()), noopListens)
		if err != nil {
			return nil, err
		}
		messages, err := descriptorMessages(crowdUsers)
		if err != nil {
			return nil, err
		}
		side := func(name string, server *process, addr string) (alike, hot *contender) {
			of := func(messages [][]byte, warmUp time.Duration) *contender {
				return &contender{
					name: name, server: server, checks: 1, warmUp: warmUp,
					closed: grpcLoad{addr, token, messages}.closed,
				}
			}
			return of(messages, 0), of(messages[:hotUsers], leaseWarmUp)
		}
		nothing, nothingHot := side("empty", empty, empty.addr)
		counting, countingHot := side("INCRBY and EXPIRE", incrby, incrby.addr)
		ours, oursHot := side("Sluice", sluice, sluice.grpc)
		check := &contender{name: "check", server: f.onRedis, requests: crowd(f.token), checks: 1}
		authorize := &contender{name: "authorize", server: f.onRedis, requests: proxied(f.token), checks: 1}
		if err := f.race(ctx, rounds, round, connections, nothing, counting, ours); err != nil {
			return nil, err
		}
		if err := f.race(ctx, rounds, round, connections, nothingHot, countingHot, oursHot); err != nil {
			return nil, err
		}
		if err := f.race(ctx, rounds, round, connections, check, authorize); err != nil {
			return nil, err
		}
		lines := []line{
			versus("gRPC, 4 descriptors on Redis ÷ INCRBY and EXPIRE, requests/s", counting, ours, 1),
			versus("  ÷ an empty handler of grpc-go", nothing, ours, 0),
			versus("  INCRBY and EXPIRE ÷ the empty handler", nothing, counting, 0),
			note("  Redis CPU per request, µs", "%.1f", counting.median("redis"), ours.median("redis")),
			note("  server CPU per request, µs", "%.1f", counting.median("server"), ours.median("server")),
			note("  the empty handler's", "%.1f", 0, nothing.median("server")),
			note("  allocations per request", "%.1f", 0, ours.median("allocations")),
			note("  requests a script", "%.1f", 0, ours.median("batch")),
			versus(fmt.Sprintf("  %d hot users ÷ INCRBY and EXPIRE", hotUsers), countingHot, oursHot, 0),
			versus("  hot users ÷ an empty handler of grpc-go", nothingHot, oursHot, 0),
			note("  hot users, server CPU per request, µs", "%.1f", nothingHot.median("server"),
				oursHot.median("server")),
		}
		return append(lines, versus("/v1/authorize ÷ /v1/check, requests/s", check, authorize, 0)), nil
	})
}

// createEnvoyTenant makes a tenant with the limits of fourDescriptors.
func createEnvoyTenant(ctx context.Context, database string) (token string, err error) {
	files := []ruleset.File{{Name: "four descriptors", Data: []byte(fourDescriptors)}}
	config, _, err := ruleset.DecodeEnvoy(files, nil, ruleset.EnvoyOptions{})
	if err != nil {
		return "", err
	}
	return createTenantWith(ctx, database, "envoy", config)
}

func descriptorMessages(users int) ([][]byte, error) {
	messages := make([][]byte, users)
	for user := range messages {
		request := &rls.RateLimitRequest{Domain: "bench"}
		for _, entry := range [][2]string{
			{"user_id", fmt.Sprint(user)},
			{"path", fmt.Sprint("/api/", user%20)},
			{"remote_address", ipv4(user)},
			{"generic_key", "all"},
		} {
			request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: entry[0], Value: entry[1]}},
			})
		}
		message, err := proto.Marshal(request)
		if err != nil {
			return nil, fmt.Errorf("write a request: %w", err)
		}
		messages[user] = message
	}
	return messages, nil
}

func proxied(token string) [][]byte {
	requests := make([][]byte, crowdUsers)
	for user := range requests {
		requests[user] = fmt.Appendf(nil,
			"GET /v1/authorize HTTP/1.1\r\nHost: bench\r\nX-Sluice-Key: %s\r\nX-User: %d\r\n"+
				"X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /api/%d\r\nX-Forwarded-For: %s\r\n\r\n",
			token, user, user%20, ipv4(user))
	}
	return requests
}
