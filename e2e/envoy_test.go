package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluicegate/sluice/internal/certs/certstest"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

var answeringGRPC = regexp.MustCompile(`"grpc_addr":"([^"]+)"`)

type envoy struct {
	rls.RateLimitServiceClient
	key string
}

func newEnvoy(t *testing.T, addr, key string, transport credentials.TransportCredentials) envoy {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return envoy{rls.NewRateLimitServiceClient(conn), key}
}

func (e envoy) try(ctx context.Context, domain string, text ...string) (*rls.RateLimitResponse, error) {
	request := &rls.RateLimitRequest{Domain: domain, HitsAddend: 1}
	for i := 0; i < len(text); i += 2 {
		request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: text[i], Value: text[i+1]}},
		})
	}
	return e.ShouldRateLimit(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+e.key), request)
}

func (e envoy) ask(t *testing.T, domain string, text ...string) *rls.RateLimitResponse {
	t.Helper()
	answer, err := e.try(t.Context(), domain, text...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (tn tenant) startGRPC(t *testing.T, redis string, options ...string) (*api, envoy) {
	t.Helper()
	a := tn.startAPI(t, redis, append([]string{"--grpc-addr", "127.0.0.1:0"}, options...)...)
	return a, newEnvoy(t, a.await(t, &a.stderr, answeringGRPC)[1], tn.key, insecure.NewCredentials())
}

// The configurations of envoyproxy/ratelimit's integration tests, in our words.
const (
	basicConfig = "domain: basic\ndescriptors:\n- {key: key1, rate_limit: {unit: second, requests_per_unit: " +
		"50}}\n- {key: one_per_minute, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
	anotherConfig = "domain: another\ndescriptors:\n- {key: key2, rate_limit: {unit: minute, requests_per_unit: " +
		"20}}\n" +
		"- {key: key3, rate_limit: {unit: hour, requests_per_unit: 10}}\n- {key: key4, rate_limit: {unit: day, " +
		"requests_per_unit: 20}}\n"
	shareConfig = "domain: share-threshold-test\ndescriptors:\n" +
		"- {key: files, value: files/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 10}}\n" +
		"- {key: files_no_share, value: files_no_share/*, rate_limit: {unit: hour, requests_per_unit: 10}}\n"
)

func TestAnImportedConfigurationAnswersAsBefore(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules: []\n")
	for _, config := range []string{basicConfig, anotherConfig, shareConfig} {
		admin(t, tn.database, "import-envoy", "--tenant", tn.slug, "-f", writeRules(t, config))
	}
	_, e := tn.startGRPC(t, devdbtest.Redis(t).URL())
	is := func(answer *rls.RateLimitResponse, i int, code rls.RateLimitResponse_Code, limit, remaining uint32,
		unit rls.RateLimitResponse_RateLimit_Unit,
	) {
		t.Helper()
		s := answer.GetStatuses()[i]
		if s.GetCode() != code || s.GetCurrentLimit().GetRequestsPerUnit() != limit ||
			s.GetCurrentLimit().GetUnit() != unit ||
			s.GetLimitRemaining() != remaining {
			t.Errorf("status %d is %v, want %s of %d per %s with %d left", i, s, code, limit, unit, remaining)
		}
	}
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	if answer := e.ask(t, "foo", "hello", "world"); answer.GetOverallCode() != ok ||
		answer.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("an unknown domain is answered %v", answer)
	}
	is(e.ask(t, "basic", "key1", "foo"), 0, ok, 50, 49, rls.RateLimitResponse_RateLimit_SECOND)

	// A minute that ends meanwhile would give more.
	sameMinute := func(n int, ask func(i int) (holds func())) {
		for {
			began := time.Now().Unix() / 60
			var all []func()
			for i := range n {
				all = append(all, ask(i))
			}
			if time.Now().Unix()/60 == began {
				for _, holds := range all {
					holds()
				}
				return
			}
		}
	}
	value := func() string { return fmt.Sprint(time.Now().UnixNano()) }
	one := value()
	sameMinute(25, func(i int) func() {
		if i == 0 {
			one = value()
		}
		answer := e.ask(t, "another", "key2", one)
		return func() {
			if i < 20 {
				is(answer, 0, ok, 20, uint32(19-i), rls.RateLimitResponse_RateLimit_MINUTE)
			} else {
				is(answer, 0, over, 20, 0, rls.RateLimitResponse_RateLimit_MINUTE)
			}
		}
	})
	sameMinute(15, func(i int) func() {
		if i == 0 {
			one = value()
		}
		answer := e.ask(t, "another", "key2", one, "key3", one)
		return func() {
			if i < 10 {
				is(answer, 0, ok, 20, uint32(19-i), rls.RateLimitResponse_RateLimit_MINUTE)
				is(answer, 1, ok, 10, uint32(9-i), rls.RateLimitResponse_RateLimit_HOUR)
				return
			}
			is(answer, 1, over, 10, 0, rls.RateLimitResponse_RateLimit_HOUR)
			// A denial from the memory of the last second says nothing of keys that pass.
			if answer.GetStatuses()[0].GetCurrentLimit() != nil {
				is(answer, 0, ok, 20, 10, rls.RateLimitResponse_RateLimit_MINUTE)
			}
		}
	})
	first := e.ask(t, "another", "key4", "durTest").GetStatuses()[0].GetDurationUntilReset().GetSeconds()
	eventually(t, patience, "duration_until_reset to fall", func() bool {
		return e.ask(t, "another", "key4",
			"durTest"+value()).GetStatuses()[0].GetDurationUntilReset().GetSeconds() < first
	})

	for range 10 {
		e.ask(t, "share-threshold-test", "files", "files/a.pdf")
	}
	is(e.ask(t, "share-threshold-test", "files", "files/b.csv"), 0, over, 10, 0, rls.RateLimitResponse_RateLimit_HOUR)
	for range 10 {
		is(e.ask(t, "share-threshold-test", "files_no_share", "files_no_share/"+value()), 0, ok, 10, 9,
			rls.RateLimitResponse_RateLimit_HOUR)
	}
}

func TestHitsAreGivenBackInRedis(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/hour, burst_capacity: 3}\n")
	tn.key = strings.TrimSpace(admin(t, tn.database, "create-key", "--tenant", "acme", "--name", "refunds",
		"--permissions", "check,refund"))
	_, e := tn.startGRPC(t, devdbtest.Redis(t).URL())
	for want := range uint32(3) {
		if left := e.ask(t, "acme", "user_id", "42").GetStatuses()[0].GetLimitRemaining(); left != 2-want {
			t.Errorf("%d are left, want %d", left, 2-want)
		}
	}
	back := &rls.RateLimitRequest{Domain: "acme", HitsAddend: 2, Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "user_id", Value: "42"}}, IsNegativeHits: true,
	}}}
	answer, err := e.ShouldRateLimit(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+e.key),
		back)
	if err != nil || answer.GetStatuses()[0].GetLimitRemaining() != 2 {
		t.Errorf("hits are given back as %v, %v", answer, err)
	}
	for i, want := range []rls.RateLimitResponse_Code{
		rls.RateLimitResponse_OK, rls.RateLimitResponse_OK,
		rls.RateLimitResponse_OVER_LIMIT,
	} {
		if got := e.ask(t, "acme", "user_id", "42").GetOverallCode(); got != want {
			t.Errorf("request %d after it is %s, want %s", i, got, want)
		}
	}
}

func TestGRPCSurvivesARestart(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"ip:{ip}\", rate: 1000000/second, burst_capacity: 1000000}\n")
	redis := devdbtest.Redis(t).URL()
	first, _ := tn.startGRPC(t, redis)
	line := newLine(t, first.await(t, &first.stderr, answeringGRPC)[1])
	e := newEnvoy(t, line.addr, tn.key, insecure.NewCredentials())
	var limited, unavailable atomic.Int64
	done := make(chan struct{})
	var load sync.WaitGroup
	for range 8 {
		load.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				answer, err := e.try(t.Context(), "acme", "ip", "203.0.113.9")
				switch {
				case err == nil && answer.GetStatuses()[0].GetCurrentLimit() != nil:
					limited.Add(1)
				case status.Code(err) == codes.Unavailable:
					unavailable.Add(1)
				default:
					t.Errorf("answered %v, %v", answer, err)
					return
				}
			}
		})
	}
	eventually(t, patience, "requests before the restart", func() bool { return limited.Load() > 100 || t.Failed() })
	second, _ := tn.startGRPC(t, redis)
	to := second.await(t, &second.stderr, answeringGRPC)[1]
	line.to.Store(&to)
	first.stop(t)
	before := limited.Load()
	eventually(t, patience, "requests after the restart",
		func() bool { return limited.Load() > before+100 || t.Failed() })
	close(done)
	load.Wait()
	t.Logf("%d limited, %d unavailable", limited.Load(), unavailable.Load())
	if unavailable.Load() > 0 {
		t.Errorf("%d requests failed, though another process was there before this one drained", unavailable.Load())
	}
}

func TestGRPCTakesTLSAndClientsWithCertificates(t *testing.T) {
	t.Parallel()
	ca, other := certstest.New(t), certstest.New(t)
	pair, client, foreign := ca.Valid(t, "sluice"), ca.Valid(t, "envoy"), other.Valid(t, "envoy")
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/hour, burst_capacity: 1}\n")
	a := tn.startAPI(t, devdbtest.Redis(t).URL(), "--grpc-addr", "127.0.0.1:0",
		"--grpc-tls-cert", pair.CertFile, "--grpc-tls-key", pair.KeyFile, "--grpc-tls-client-ca", ca.CAFile)
	addr := a.await(t, &a.stderr, answeringGRPC)[1]
	e := newEnvoy(t, addr, tn.key, credentials.NewTLS(ca.Client(t, client)))
	for _, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		if got := e.ask(t, "acme", "user_id", "42").GetOverallCode(); got != want {
			t.Errorf("answered %s, want %s", got, want)
		}
	}
	for name, transport := range map[string]credentials.TransportCredentials{
		"without a certificate":          credentials.NewTLS(ca.Client(t, certstest.Pair{})),
		"with one of another authority":  credentials.NewTLS(ca.Client(t, foreign)),
		"without TLS":                    insecure.NewCredentials(),
		"which trusts another authority": credentials.NewTLS(other.Client(t, client)),
	} {
		if _, err := newEnvoy(t, addr, tn.key, transport).try(t.Context(), "acme", "user_id",
			"7"); status.Code(err) != codes.Unavailable {
			t.Errorf("a client %s is answered %v", name, err)
		}
	}
}
