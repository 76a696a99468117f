// Command grpcdesigns answers Envoy's rate limit service in two ways that Sluice is compared with: by nothing at all,
// and by counters in Redis.
//
//	grpcdesigns empty
//	grpcdesigns incrby redis://…
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

func main() {
	var service rls.RateLimitServiceServer = empty{}
	if os.Args[1] == "incrby" {
		options, err := redis.ParseURL(os.Args[2])
		if err != nil {
			panic(err)
		}
		service = counters{rdb: redis.NewClient(options)}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, service)
	fmt.Fprintln(os.Stderr, "listening", listener.Addr())
	panic(server.Serve(listener))
}

// As in fourDescriptors.
const (
	window = time.Hour
	limit  = 1_000_000_000
)

type empty struct {
	rls.UnimplementedRateLimitServiceServer
}

func (empty) ShouldRateLimit(_ context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range request.GetDescriptors() {
		answer.Statuses = append(answer.Statuses, statusOf(1, 0))
	}
	return answer, nil
}

// counters is the common design: for each descriptor an INCRBY of the window's key and an EXPIRE, all in one pipeline,
// also for denied requests.
type counters struct {
	rls.UnimplementedRateLimitServiceServer
	rdb *redis.Client
}

func (c counters) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	now := time.Now().Unix()
	start := now - now%int64(window/time.Second)
	hits := int64(max(1, request.GetHitsAddend()))
	pipeline := c.rdb.Pipeline()
	counts := make([]*redis.IntCmd, len(request.GetDescriptors()))
	for i, descriptor := range request.GetDescriptors() {
		key := make([]byte, 0, 64)
		key = append(append(key, request.GetDomain()...), '_')
		for _, entry := range descriptor.GetEntries() {
			key = append(append(key, entry.GetKey()...), '_')
			key = append(append(key, entry.GetValue()...), '_')
		}
		key = strconv.AppendInt(key, start, 10)
		counts[i] = pipeline.IncrBy(ctx, string(key), hits)
		pipeline.Expire(ctx, string(key), window)
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		return nil, fmt.Errorf("count in redis: %w", err)
	}
	answer := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	reset := start + int64(window/time.Second) - now
	for _, count := range counts {
		status := statusOf(count.Val(), reset)
		if status.GetCode() == rls.RateLimitResponse_OVER_LIMIT {
			answer.OverallCode = status.GetCode()
		}
		answer.Statuses = append(answer.Statuses, status)
	}
	return answer, nil
}

func statusOf(count, resetSeconds int64) *rls.RateLimitResponse_DescriptorStatus {
	status := &rls.RateLimitResponse_DescriptorStatus{
		Code: rls.RateLimitResponse_OK,
		CurrentLimit: &rls.RateLimitResponse_RateLimit{
			RequestsPerUnit: limit,
			Unit:            rls.RateLimitResponse_RateLimit_HOUR,
		},
		LimitRemaining:     uint32(max(0, limit-count)),
		DurationUntilReset: &durationpb.Duration{Seconds: resetSeconds},
	}
	if count > limit {
		status.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	return status
}
