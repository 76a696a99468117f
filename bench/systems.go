package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// class names the limits of a request, as in rivals/main.go.
type class string

const (
	plenty class = "plenty" // nobody meets them
	tight  class = "tight"
	edited class = "edited" // other limits of the buckets of tight
	slow   class = "slow"   // their buckets stay
)

func (c class) buckets() class {
	if c == edited {
		return tight
	}
	return c
}

type unit string

func (u unit) duration() time.Duration {
	if u == "hour" {
		return time.Hour
	}
	return time.Second
}

type limit struct {
	tokens, burst int
	per           unit
}

var (
	limitsOf = map[class]struct{ user, address limit }{
		plenty: {limit{1e6, 1e6, "second"}, limit{1e6, 1e6, "second"}},
		tight:  {limit{10, 50, "second"}, limit{20, 100, "second"}},
		edited: {limit{1, 50, "second"}, limit{20, 100, "second"}},
		slow:   {limit{100, 100, "hour"}, limit{100, 100, "hour"}},
	}
	perEndpoint = limit{1e6, 1e6, "second"}
	perTenant   = limit{1e7, 1e7, "second"}
)

func sluiceRules(c class) string {
	file := "rules:\n"
	for _, rule := range []struct {
		pattern string
		limit
	}{
		{"user:{user_id}", limitsOf[c].user},
		{"endpoint:{endpoint}", perEndpoint},
		{"global", perTenant},
		{"ip:{ip}", limitsOf[c].address},
	} {
		file += fmt.Sprintf("  - {key_pattern: %q, rate: %d/%s, burst_capacity: %d}\n", rule.pattern, rule.tokens,
			rule.per, rule.burst)
	}
	return file
}

// oneASecond matches the answer to the first check of a user who gets one token a second.
var oneASecond = regexp.MustCompile(`"reset_after_ms":(9\d\d|1000)\b`)

func startSluices(ctx context.Context, s *stage) ([]*system, error) {
	// Tenants of two databases would have the same numbers, and so the same buckets in the shared Redis.
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
			if tokens[c], err = createTenant(ctx, database, slug, sluiceRules(c)); err != nil {
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
			return httpRequest{"/v1/check", tokens[c], checkBody(user, address)}.bytes()
		}
		systems = append(systems, &system{
			name: one.name, server: server, onRedis: one.inRedis, request: request,
			edit: func(ctx context.Context) error {
				slug := fmt.Sprintf("%s-%s", tenant, tight)
				if err := changeRules(ctx, database, slug, sluiceRules(edited)); err != nil {
					return err
				}
				probe := 1_000_000_000
				return await(ctx, func() error {
					probe++
					check := httpRequest{"/v1/check", tokens[tight], checkBody(probe, probe)}
					answer, err := server.record(ctx, check)
					if err != nil {
						return err
					}
					var recorded struct{ Body []byte }
					if err := json.Unmarshal([]byte(answer), &recorded); err != nil {
						return err
					}
					if !oneASecond.Match(recorded.Body) {
						return fmt.Errorf("the edit is not in force: %s", recorded.Body)
					}
					return nil
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
				return httpRequest{path: "/" + string(c), body: checkBody(user, address)}.bytes()
			},
		})
	}
	return systems, nil
}

// gubernator's newest version, which builds with this Go.
const gubernator = "github.com/gubernator-io/gubernator/v2/cmd/gubernator@v2.13.0"

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
	limit := func(name, key string, l limit) string {
		return fmt.Sprintf(`{"name":%q,"unique_key":%q,"hits":"1","limit":"%d","burst":"%d","duration":"%d",`+
			`"algorithm":"LEAKY_BUCKET"}`, name, key, l.tokens, l.burst, l.per.duration().Milliseconds())
	}
	return []*system{{
		name: "gubernator, leaky buckets", server: server, denies: "OVER_LIMIT",
		request: func(c class, user, address int) []byte {
			l, buckets := limitsOf[c], string(c.buckets())
			return httpRequest{path: "/v1/GetRateLimits", body: `{"requests":[` + strings.Join([]string{
				limit(buckets+"user", fmt.Sprint(user), l.user),
				limit(buckets+"endpoint", fmt.Sprint("/api/", user%20), perEndpoint),
				limit(buckets+"global", "all", perTenant),
				limit(buckets+"ip", fmt.Sprint(address), l.address),
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
			return await(ctx, func() error {
				if _, err := os.Stat(fmt.Sprintf("/proc/%d", workers[0])); err == nil {
					return fmt.Errorf("nginx's former worker %d still runs", workers[0])
				}
				return nil
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

// startEnvoyRatelimit starts the binary that ENVOY_RATELIMIT names, because envoyproxy/ratelimit only builds in a
// checkout. Its windows are a second, without a burst.
func startEnvoyRatelimit(ctx context.Context, s *stage) ([]*system, error) {
	binary := os.Getenv("ENVOY_RATELIMIT")
	if binary == "" {
		return nil, nil
	}
	config := filepath.Join(s.dir, "envoy", "config")
	err := os.MkdirAll(config, 0o750)
	for _, domain := range []class{plenty, tight, slow} {
		l := limitsOf[domain]
		err = errors.Join(err, os.WriteFile(filepath.Join(config, string(domain)+".yaml"),
			fmt.Appendf(nil, envoyConfig, domain, l.user.per, l.user.tokens, l.address.tokens), 0o600))
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
				`{"entries":[{"key":"generic_key","value":"all"}]},`+
				`{"entries":[{"key":"remote_address","value":"%d"}]}]}`,
				c.buckets(), user, user%20, address)}.bytes()
		},
	}}, nil
}
