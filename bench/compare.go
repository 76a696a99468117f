package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

// gubernator's newest version, which builds with this Go.
const gubernator = "github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.13.0"

// class names the limits of a request. rivals/main.go has the same.
type class string

const (
	plenty class = "plenty" // nobody meets them
	tight  class = "tight"  // 10 a second and a burst of 50 per user, 20 and 100 per address
	edited class = "edited" // the same buckets, with 1 a second per user
	slow   class = "slow"   // 100 an hour per user and per address
)

const compareUsers = 100_000

// system is a rate limiter beside others.
type system struct {
	name    string
	server  *process
	onRedis bool
	// request is a check of four limits: of a user, an endpoint, everybody, and an address.
	request func(c class, user, address int) []byte
	denies  string // what the body of a denial has, if its status is 200
	// edit replaces the limits of tight by those of edited. It is nil for systems whose requests carry their limits.
	edit func(ctx context.Context) error
	grpc *grpcLoad // instead of request
}

func (s *system) load(requests [][]byte) load {
	return load{addrs: []string{s.server.addr}, requests: requests, denies: s.denies}
}

// traffic is a sequence of requests, which callers repeat.
type traffic struct {
	name string
	user func(i int) (c class, user int)
	of   int // requests until it begins again
}

func traffics() []traffic {
	skewed := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, compareUsers-1)
	byZipf := make([]int, 2*compareUsers)
	for i := range byZipf {
		byZipf[i] = int(skewed.Uint64())
	}
	return []traffic{
		{"100,000 users alike", func(i int) (class, int) { return plenty, i }, compareUsers},
		{"100 hot users", func(i int) (class, int) { return plenty, i }, 100},
		{"100,000 users by Zipf's law", func(i int) (class, int) { return plenty, byZipf[i] }, len(byZipf)},
		{"an attack: nine in ten requests from ten users", func(i int) (class, int) {
			if i%10 == 0 {
				return tight, i
			}
			return tight, compareUsers + i%10
		}, compareUsers},
	}
}

// compareSystems prints how Sluice and others decide the same checks on this machine, in Markdown.
func compareSystems(ctx context.Context, full bool) error {
	w := &bytes.Buffer{}
	err := withSystems(ctx, func(s *stage, rdb redis.UniversalClient, systems []*system) error {
		callers, loads, laps := []int{32}, traffics()[:2], 3
		if full {
			callers, loads, laps = []int{32, 64}, traffics(), 5
		}
		fmt.Fprintf(w, "%s\n", machine(ctx))
		for _, of := range loads {
			for _, n := range callers {
				if err := compareSpeed(ctx, w, rdb, systems, of, n, laps); err != nil {
					return err
				}
			}
		}
		return compareExactness(ctx, w, s, rdb, systems)
	})
	_, writeErr := w.WriteTo(os.Stdout)
	return errors.Join(err, writeErr)
}

// compareSpeed lets the systems take turns of a second, after one that does not count. Each turn begins with the time
// that caches and leases need after a pause.
func compareSpeed(ctx context.Context, w *bytes.Buffer, rdb redis.UniversalClient, systems []*system, of traffic,
	callers, laps int,
) error {
	fmt.Fprintf(os.Stderr, "%s, %d callers\n", of.name, callers)
	found := make([]figures, len(systems))
	for lap := range laps + 1 {
		for i, s := range systems {
			if of.name[:2] == "an" && s.grpc != nil {
				continue // its limits are plenty
			}
			measured, err := compareLap(ctx, rdb, s, of, callers)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.name, of.name, err)
			}
			if lap == 0 {
				found[i] = figures{}
				continue
			}
			for name, value := range measured {
				found[i].add(name, value)
			}
		}
	}
	fmt.Fprintf(w, "\n**%s, %d callers**\n\n", strings.ToUpper(of.name[:1])+of.name[1:], callers)
	fmt.Fprintln(w, "| | checks/s | p50, ms | p99, ms | server's time, µs | Redis's, µs | denied | errors |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i, s := range systems {
		if found[i] == nil {
			continue
		}
		inRedis := "–"
		if s.onRedis {
			inRedis = fmt.Sprintf("%.1f", found[i].median("redis"))
		}
		fmt.Fprintf(w, "| %s | %.0f | %.2f | %.2f | %.1f | %s | %.0f %% | %.0f %% |\n", s.name,
			found[i].median("checks/s"), found[i].median("p50"), found[i].median("p99"), found[i].median("server"),
			inRedis,
			100*found[i].median("denied"), 100*found[i].median("failed"))
	}
	return nil
}

func compareLap(ctx context.Context, rdb redis.UniversalClient, s *system, of traffic, callers int) (
	map[string]float64, error,
) {
	var closed func(context.Context, int, time.Duration) (outcome, error)
	if s.grpc != nil {
		l := *s.grpc
		l.messages = make([][]byte, of.of)
		for i := range l.messages {
			_, user := of.user(i)
			l.messages[i] = s.grpc.messages[user%compareUsers]
		}
		closed = l.closed
	} else {
		requests := make([][]byte, of.of)
		for i := range requests {
			c, user := of.user(i)
			requests[i] = s.request(c, user, user)
		}
		l := s.load(requests)
		l.tolerant = true
		closed = l.closed
	}
	if _, err := closed(ctx, callers, leaseWarmUp); err != nil {
		return nil, err
	}
	redisBefore, err := processorSeconds(ctx, rdb)
	if err != nil {
		return nil, err
	}
	before, err := s.server.processor()
	if err != nil {
		return nil, err
	}
	done, err := closed(ctx, callers, time.Second)
	if err != nil {
		return nil, err
	}
	after, err := s.server.processor()
	if err != nil {
		return nil, err
	}
	redisAfter, err := processorSeconds(ctx, rdb)
	if err != nil {
		return nil, err
	}
	checks := float64(done.answers - done.failed)
	return map[string]float64{
		"checks/s": done.perSecond * checks / float64(done.answers), "denied": float64(done.denied) / checks,
		"failed": float64(done.failed) / float64(done.answers),
		"p50":    micros(done.percentile(0.5)) / 1e3, "p99": micros(done.percentile(0.99)) / 1e3,
		"server": micros(after-before) / checks, "redis": (redisAfter - redisBefore) * 1e6 / checks,
	}, nil
}

// compareExactness prints how many requests the systems admit, as a share of what their limits allow, and how much
// memory a bucket takes.
func compareExactness(ctx context.Context, w *bytes.Buffer, st *stage, rdb redis.UniversalClient,
	systems []*system,
) error {
	fmt.Fprintln(w, "\n**Exactness and memory**")
	fmt.Fprintln(w, "\n| | admitted ÷ limit, 64 callers | a denied check takes | after an edit to a tenth | "+
		"while Redis is down | MiB per million buckets |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: |")
	for i, s := range systems {
		if s.grpc != nil {
			continue
		}
		fmt.Fprintln(os.Stderr, s.name)
		user := 10_000_000 * (i + 1) // nobody else's
		concurrent, _, err := admitted(ctx, s, tight, user, 50, 10)
		if err != nil {
			return fmt.Errorf("%s, concurrent callers: %w", s.name, err)
		}
		taken, err := takenByDenied(ctx, s, user+1)
		if err != nil {
			return fmt.Errorf("%s, denied checks: %w", s.name, err)
		}
		memory, err := perMillionBuckets(ctx, rdb, s, user)
		if err != nil {
			return fmt.Errorf("%s, memory: %w", s.name, err)
		}
		outage := "–"
		if s.onRedis {
			if outage, err = withoutRedis(ctx, st, s, user+3); err != nil {
				return fmt.Errorf("%s, without Redis: %w", s.name, err)
			}
		}
		afterEdit, err := edit(ctx, s, user+2)
		if err != nil {
			return fmt.Errorf("%s, an edit: %w", s.name, err)
		}
		fmt.Fprintf(w, "| %s | %.2f | %s | %.1f | %s | %.0f |\n", s.name, concurrent, taken, afterEdit, outage, memory)
	}
	return nil
}

const exactFor = 3 * time.Second

// admitted returns what 64 callers of one user get in exactFor, divided by what a burst and a rate allow meanwhile,
// and the share of requests that got no decision. Each caller has an address of his own.
func admitted(ctx context.Context, s *system, c class, user int, burst, perSecond float64) (ratio, failed float64,
	err error,
) {
	requests := make([][]byte, 64)
	for i := range requests {
		requests[i] = s.request(c, user, user+i)
	}
	l := s.load(requests)
	l.tolerant = true
	start := time.Now()
	done, err := l.closed(ctx, len(requests), exactFor)
	if err != nil {
		return 0, 0, err
	}
	allowed := float64(done.answers - done.denied - done.failed)
	return allowed / (burst + perSecond*time.Since(start).Seconds()), float64(done.failed) / float64(done.answers), nil
}

// takenByDenied says what a check that one limit denies takes from another: it exhausts an address, has a user denied
// there 200 times, and counts what the user has left elsewhere.
func takenByDenied(ctx context.Context, s *system, user int) (string, error) {
	one := func(user, address, times int) (allowed int, err error) {
		open, err := s.load(nil).dial(ctx, 1)
		defer closeAll(open)
		if err != nil {
			return 0, err
		}
		for range times {
			status, err := open[0].ask(s.request(tight, user, address), s.denies)
			if err != nil {
				return 0, err
			}
			if status == 200 {
				allowed++
			}
		}
		return allowed, nil
	}
	for other := range 6 { // 6 × 50 is more than an address gets
		if _, err := one(user+1000+other, user, 50); err != nil {
			return "", err
		}
	}
	inVain, err := one(user, user, 200)
	if err != nil {
		return "", err
	}
	left, err := one(user, user+1, 50-inVain)
	if err != nil {
		return "", err
	}
	if left >= 50-inVain-2 {
		return "nothing", nil
	}
	return fmt.Sprintf("%d of 50", 50-inVain-left), nil
}

// edit cuts the limit of a user with an empty bucket to a tenth, and returns how many requests are admitted then, as a
// share of what the new limit allows.
func edit(ctx context.Context, s *system, user int) (float64, error) {
	if _, _, err := admitted(ctx, s, tight, user, 50, 10); err != nil {
		return 0, err
	}
	start := time.Now()
	after := edited
	if s.edit != nil {
		after = tight
		if err := s.edit(ctx); err != nil {
			return 0, err
		}
	}
	// Until the edit holds, the bucket fills as before.
	ratio, _, err := admitted(ctx, s, after, user, 10*time.Since(start).Seconds(), 1)
	return ratio, err
}

// withoutRedis says what a user gets whose checks begin when Redis has been killed.
func withoutRedis(ctx context.Context, st *stage, s *system, user int) (string, error) {
	st.redis.Kill()
	ratio, failed, err := admitted(ctx, s, tight, user, 50, 10)
	if err := errors.Join(err, st.redis.Restart(ctx)); err != nil {
		return "", err
	}
	if failed > 0.5 {
		return "errors", nil
	}
	return fmt.Sprintf("%.2f", ratio), nil
}

// perMillionBuckets returns by how many MiB a server and Redis grow with 200,000 buckets, times five.
func perMillionBuckets(ctx context.Context, rdb redis.UniversalClient, s *system, first int) (float64, error) {
	size := func() (float64, error) {
		server, err := s.server.resident()
		if err != nil || !s.onRedis {
			return float64(server), err
		}
		inRedis, err := info(ctx, rdb, "memory", "used_memory:%g")
		return float64(server) + inRedis, err
	}
	before, err := size()
	if err != nil {
		return 0, err
	}
	requests := make([][]byte, compareUsers)
	for i := range requests {
		requests[i] = s.request(slow, first+i, first+i)
	}
	l := s.load(requests)
	l.tolerant = true
	if err := l.once(ctx, connections); err != nil {
		return 0, err
	}
	after, err := size()
	return (after - before) / (1 << 20) * 1e6 / (2 * compareUsers), err
}

func withSystems(ctx context.Context, do func(*stage, redis.UniversalClient, []*system) error) (err error) {
	s, err := setStage(ctx)
	if err != nil {
		return err
	}
	defer s.clear()
	build := exec.CommandContext(ctx, "go", "build", "-o", s.dir+"/", "./rivals")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the servers of Go libraries: %w\n%s", err, output)
	}
	options, err := redisbucket.Options(s.redis.URL(), budget)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	var systems []*system
	for _, start := range []func(context.Context, *stage) ([]*system, error){
		startSluices, startLibraries, startGubernator, startNginx, startEnvoyRatelimit,
	} {
		started, err := start(ctx, s)
		if err != nil {
			return err
		}
		systems = append(systems, started...)
	}
	return do(s, rdb, systems)
}

// sluiceRules are the limits of a user and an address as Sluice's rules.
func sluiceRules(perUser string, burst int, perAddress string, addressBurst int) string {
	return fmt.Sprintf(`rules:
  - {key_pattern: "user:{user_id}", rate: %s, burst_capacity: %d}
  - {key_pattern: "endpoint:{endpoint}", rate: 1000000/second, burst_capacity: 1000000}
  - {key_pattern: global, rate: 10000000/second, burst_capacity: 10000000}
  - {key_pattern: "ip:{ip}", rate: %s, burst_capacity: %d}
`, perUser, burst, perAddress, addressBurst)
}

var sluiceClasses = map[class]string{
	plenty: sluiceRules("1000000/second", 1e6, "1000000/second", 1e6),
	tight:  sluiceRules("10/second", 50, "20/second", 100),
	edited: sluiceRules("1/second", 50, "20/second", 100),
	slow:   sluiceRules("100/hour", 100, "100/hour", 100),
}

func startSluices(ctx context.Context, s *stage) ([]*system, error) {
	// They share a database as well as a Redis, as processes of one installation do: tenants of two databases would
	// have the same numbers, and so the same buckets.
	database, err := s.database(ctx, "compare")
	if err != nil {
		return nil, err
	}
	var systems []*system
	for i, one := range []struct {
		name    string
		inRedis bool
		options []string
	}{
		{"Sluice on Redis", true, nil},
		{"Sluice on Redis, leases off", true, []string{"SLUICE_LEASES=off"}},
		{"Sluice in memory", false, nil},
	} {
		tenant := fmt.Sprintf("compare-%d", i) // each has its own: edits come one after the other
		tokens := map[class]string{}
		for _, c := range []class{plenty, tight, slow} {
			slug := fmt.Sprintf("%s-%s", tenant, c)
			if tokens[c], err = createTenantOf(ctx, database, slug, sluiceClasses[c]); err != nil {
				return nil, err
			}
		}
		store := ""
		if one.inRedis {
			store = s.redis.URL()
		}
		server, err := s.startAPI(ctx, database, store, one.options...)
		if err != nil {
			return nil, err
		}
		request := func(c class, user, address int) []byte {
			return httpRequest{"/v1/check", tokens[c], compareBody(user, address)}.bytes()
		}
		systems = append(systems, &system{
			name: one.name, server: server, onRedis: one.inRedis, request: request,
			edit: func(ctx context.Context) error {
				slug := fmt.Sprintf("%s-%s", tenant, tight)
				if err := changeLimits(ctx, database, slug, sluiceClasses[edited]); err != nil {
					return err
				}
				probe := 1_000_000_000
				return awaitTrue(ctx, func() bool {
					probe++
					check := httpRequest{"/v1/check", tokens[tight], compareBody(probe, probe)}
					answer, err := server.record(ctx, check)
					var recorded struct{ Body []byte }
					return err == nil && json.Unmarshal([]byte(answer), &recorded) == nil &&
						oneASecond.Match(recorded.Body)
				})
			},
		})
	}
	token, err := createEnvoyTenant(ctx, database)
	if err != nil {
		return nil, err
	}
	server, err := s.startAPI(ctx, database, s.redis.URL(), "SLUICE_GRPC_ADDR=127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	messages, err := descriptorMessages(compareUsers)
	if err != nil {
		return nil, err
	}
	return append(systems, &system{
		name: "Sluice on Redis, gRPC", server: server, onRedis: true,
		grpc: &grpcLoad{server.grpc, token, messages},
	}), nil
}

// compareBody is the question of a user, with an endpoint that he shares with others.
func compareBody(user, address int) string {
	return fmt.Sprintf(`{"user_id":"%d","endpoint":"/api/%d","method":"GET","ip":"10.%d.%d.%d"}`,
		user, user%20, address>>16&255, address>>8&255, address&255)
}

func startLibraries(ctx context.Context, s *stage) ([]*system, error) {
	var systems []*system
	for _, one := range []struct {
		name string
		args []string
	}{
		{"go-redis/redis_rate", []string{"redis_rate", s.redis.URL()}},
		{"throttled on Redis", []string{"throttled", s.redis.URL()}},
		{"x/time/rate", []string{"x/time/rate"}},
	} {
		server, err := s.start(exec.CommandContext(ctx, filepath.Join(s.dir, "rivals"), one.args...), noopListens)
		if err != nil {
			return nil, err
		}
		systems = append(systems, &system{
			name: one.name, server: server, onRedis: len(one.args) > 1,
			request: func(c class, user, address int) []byte {
				return httpRequest{path: "/" + string(c), body: compareBody(user, address)}.bytes()
			},
		})
	}
	return systems, nil
}

func startGubernator(ctx context.Context, s *stage) ([]*system, error) {
	install := exec.CommandContext(ctx, "go", "install", gubernator)
	install.Env = append(os.Environ(), "GOBIN="+s.dir)
	if output, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build gubernator: %w\n%s", err, output)
	}
	ports, err := s.freeAddresses(2)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "gubernator"))
	cmd.Env = []string{
		"GUBER_HTTP_ADDRESS=" + ports[0], "GUBER_GRPC_ADDRESS=" + ports[1], "GUBER_ADVERTISE_ADDRESS=" + ports[1],
		"GUBER_CACHE_SIZE=3000000", "GUBER_LOG_LEVEL=error",
	}
	server, err := s.startAt(ctx, cmd, ports[0])
	if err != nil {
		return nil, err
	}
	limit := func(name, key string, tokens, burst int, per time.Duration) string {
		return fmt.Sprintf(`{"name":%q,"unique_key":%q,"hits":"1","limit":"%d","burst":"%d","duration":"%d",`+
			`"algorithm":"LEAKY_BUCKET"}`, name, key, tokens, burst, per.Milliseconds())
	}
	return []*system{{
		name: "gubernator, leaky buckets", server: server, denies: "OVER_LIMIT",
		request: func(c class, user, address int) []byte {
			perUser, burst, perAddress, addressBurst, per, buckets := 1_000_000, 1_000_000, 1_000_000, 1_000_000,
				time.Second, string(c)
			switch c {
			case tight, edited:
				perUser, burst, perAddress, addressBurst, buckets = 10, 50, 20, 100, "tight"
				if c == edited {
					perUser = 1
				}
			case slow:
				perUser, burst, perAddress, addressBurst, per = 100, 100, 100, 100, time.Hour
			}
			return httpRequest{path: "/v1/GetRateLimits", body: `{"requests":[` + strings.Join([]string{
				limit(buckets+"user", fmt.Sprint(user), perUser, burst, per),
				limit(buckets+"endpoint", fmt.Sprint("/api/", user%20), 1_000_000, 1_000_000, time.Second),
				limit(buckets+"global", "all", 10_000_000, 10_000_000, time.Second),
				limit(buckets+"ip", fmt.Sprint(address), perAddress, addressBurst, per),
			}, ",") + "]}"}.bytes()
		},
	}}, nil
}

const nginxConfig = `
worker_processes auto;
error_log %[1]s/error.log crit;
pid %[1]s/nginx.pid;
events { worker_connections 1024; }
http {
  access_log off;
  limit_req_status 429;
  limit_req_log_level info;
  keepalive_requests 1000000000;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  limit_req_zone $arg_user zone=pu:256m rate=1000000r/s;
  limit_req_zone $arg_ip zone=pi:256m rate=1000000r/s;
  limit_req_zone $arg_user zone=tu:64m rate=%[3]dr/s;
  limit_req_zone $arg_ip zone=ti:64m rate=20r/s;
  limit_req_zone $arg_user zone=su:64m rate=2r/m;
  limit_req_zone $arg_ip zone=si:64m rate=2r/m;
  limit_req_zone $arg_endpoint zone=e:16m rate=1000000r/s;
  limit_req_zone $host zone=g:16m rate=10000000r/s;
  server {
    listen %[2]s;
    root %[1]s/root;
    limit_req zone=e burst=1000000 nodelay;
    location = /plenty {
      limit_req zone=pu burst=1000000 nodelay; limit_req zone=e burst=1000000 nodelay;
      limit_req zone=g burst=1000000 nodelay; limit_req zone=pi burst=1000000 nodelay;
    }
    location = /tight {
      limit_req zone=tu burst=49 nodelay; limit_req zone=e burst=1000000 nodelay;
      limit_req zone=g burst=1000000 nodelay; limit_req zone=ti burst=99 nodelay;
    }
    location = /slow {
      limit_req zone=su burst=99 nodelay; limit_req zone=e burst=1000000 nodelay;
      limit_req zone=g burst=1000000 nodelay; limit_req zone=si burst=99 nodelay;
    }
  }
}
`

func startNginx(ctx context.Context, s *stage) ([]*system, error) {
	dir := filepath.Join(s.dir, "nginx")
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o755); err != nil { //nolint:gosec // its workers read it
		return nil, fmt.Errorf("make a directory for nginx: %w", err)
	}
	if err := os.Chmod(s.dir, 0o755); err != nil { //nolint:gosec // likewise
		return nil, fmt.Errorf("open the directory to nginx: %w", err)
	}
	ports, err := s.freeAddresses(1)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "nginx.conf")
	configure := func(perUser int) error {
		return os.WriteFile(file, fmt.Appendf(nil, nginxConfig, dir, ports[0], perUser), 0o600)
	}
	err = configure(10)
	for _, name := range []class{plenty, tight, slow} {
		answer := filepath.Join(dir, "root", string(name))
		err = errors.Join(err, os.WriteFile(answer, []byte(`{"allowed":true}`), 0o644)) //nolint:gosec // likewise
	}
	if err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	server, err := s.startAt(ctx, exec.CommandContext(ctx, "nginx", "-c", file, "-g", "daemon off;"), ports[0])
	if err != nil {
		return nil, err
	}
	return []*system{{
		name: "nginx limit_req", server: server,
		request: func(c class, user, address int) []byte {
			return fmt.Appendf(nil, "GET /%s?user=%d&endpoint=/api/%d&ip=%d HTTP/1.1\r\nHost: bench\r\n\r\n",
				c, user, user%20, address)
		},
		edit: func(ctx context.Context) error {
			workers, err := server.children()
			if err != nil {
				return err
			}
			if err := configure(1); err != nil {
				return fmt.Errorf("configure nginx: %w", err)
			}
			if err := exec.CommandContext(ctx, "nginx", "-c", file, "-s", "reload").Run(); err != nil {
				return fmt.Errorf("reload nginx: %w", err)
			}
			return awaitTrue(ctx, func() bool {
				_, err := os.Stat(fmt.Sprintf("/proc/%d", workers[0]))
				return err != nil
			})
		},
	}}, nil
}

const envoyConfig = `domain: %[1]s
descriptors:
  - {key: user_id, rate_limit: {unit: %[2]s, requests_per_unit: %[3]d}}
  - {key: path, rate_limit: {unit: second, requests_per_unit: 1000000}}
  - {key: generic_key, value: all, rate_limit: {unit: second, requests_per_unit: 10000000}}
  - {key: remote_address, rate_limit: {unit: %[2]s, requests_per_unit: %[4]d}}
`

// startEnvoyRatelimit starts the binary of envoyproxy/ratelimit that ENVOY_RATELIMIT names: it can be built in a
// checkout of it only. It has windows of a second, and no burst.
func startEnvoyRatelimit(ctx context.Context, s *stage) ([]*system, error) {
	binary := os.Getenv("ENVOY_RATELIMIT")
	if binary == "" {
		return nil, nil
	}
	config := filepath.Join(s.dir, "envoy", "config")
	err := os.MkdirAll(config, 0o750)
	for _, one := range []struct {
		domain              class
		unit                string
		perUser, perAddress int
	}{{plenty, "second", 1_000_000, 1_000_000}, {tight, "second", 10, 20}, {slow, "hour", 100, 100}} {
		err = errors.Join(err, os.WriteFile(filepath.Join(config, string(one.domain)+".yaml"),
			fmt.Appendf(nil, envoyConfig, one.domain, one.unit, one.perUser, one.perAddress), 0o600))
	}
	if err != nil {
		return nil, fmt.Errorf("configure envoyproxy/ratelimit: %w", err)
	}
	ports, err := s.freeAddresses(3)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary) //nolint:gosec // who runs this program names the binary
	for name, address := range map[string]string{"": ports[0], "GRPC_": ports[1], "DEBUG_": ports[2]} {
		host, port, _ := net.SplitHostPort(address)
		cmd.Env = append(cmd.Env, name+"HOST="+host, name+"PORT="+port)
	}
	cmd.Env = append(cmd.Env, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+s.redis.URL(), "USE_STATSD=false",
		"LOG_LEVEL=error", "RUNTIME_ROOT="+filepath.Dir(config), "RUNTIME_WATCH_ROOT=false")
	server, err := s.startAt(ctx, cmd, ports[0])
	if err != nil {
		return nil, err
	}
	return []*system{{
		name: "envoyproxy/ratelimit, /json", server: server, onRedis: true,
		request: func(c class, user, address int) []byte {
			return httpRequest{path: "/json", body: fmt.Sprintf(`{"domain":%q,"descriptors":[`+
				`{"entries":[{"key":"user_id","value":"%d"}]},{"entries":[{"key":"path","value":"/api/%d"}]},`+
				`{"entries":[{"key":"generic_key","value":"all"}]},{"entries":[{"key":"remote_address","value":"%d"}]}]}`,
				cmp.Or(map[class]class{edited: tight}[c], c), user, user%20, address)}.bytes()
		},
	}}, nil
}

// oneASecond is in an answer to the first check of a user who gets one token a second.
var oneASecond = regexp.MustCompile(`"reset_after_ms":(9\d\d|1000)\b`)

// changeLimits replaces the rules of a tenant.
func changeLimits(ctx context.Context, database, slug, config string) error {
	opened, err := pgstore.Open(ctx, database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer opened.Close()
	store := opened.As(rules.Actor{Kind: rules.ActorSystem, Name: "bench"})
	tenant, err := store.TenantBySlug(ctx, slug)
	if err != nil {
		return err
	}
	desired, err := ruleset.Decode(strings.NewReader(config), "the edited limits", nil)
	if err != nil {
		return err
	}
	_, err = store.ChangeConfig(ctx, tenant.ID, func(current ruleset.Config) (ruleset.Changes, error) {
		return ruleset.Diff(current, desired, ruleset.DiffOptions{Now: time.Now()})
	})
	return err
}

// startAt starts a program that serves at an address, and waits until it does.
func (s *stage) startAt(ctx context.Context, cmd *exec.Cmd, address string) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &process{pid: cmd.Process.Pid, addr: address, stop: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	s.stops = append(s.stops, p.stop)
	var dialer net.Dialer
	err := awaitTrue(ctx, func() bool {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s does not serve at %s: %w", cmd.Path, address, err)
	}
	return p, nil
}

// awaitTrue asks until the answer is yes.
func awaitTrue(ctx context.Context, ask func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ask() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// freeAddresses reserves ports until the stage is cleared.
func (s *stage) freeAddresses(n int) (addresses []string, err error) {
	for range n {
		port, err := devdb.ReservePort()
		if err != nil {
			return nil, err
		}
		s.stops = append(s.stops, port.Release)
		addresses = append(addresses, port.Addr())
	}
	return addresses, nil
}
