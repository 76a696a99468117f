package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

const readyTimeout = 2 * time.Minute

type stage struct {
	dir      string
	postgres *devdb.Postgres
	redis    *devdb.Redis
	stops    []func()
}

// setStage builds the binaries and starts the servers. The caller must call clear.
func setStage(ctx context.Context) (_ *stage, err error) {
	s := &stage{}
	defer func() {
		if err != nil {
			s.clear()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "sluice-bench-"); err != nil {
		return nil, fmt.Errorf("make a directory for the servers: %w", err)
	}
	s.stops = append(s.stops, func() { _ = os.RemoveAll(s.dir) })
	for _, from := range []struct{ module, program string }{{"..", "./cmd/api"}, {".", "./noop"}} {
		if err := s.build(ctx, from.module, from.program); err != nil {
			return nil, err
		}
	}
	if s.postgres, err = devdb.StartPostgres(ctx, filepath.Join(s.dir, "postgres"),
		devdb.PostgresOptions{}); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, s.postgres.Kill)
	if s.redis, err = devdb.StartRedis(ctx, filepath.Join(s.dir, "redis")); err != nil {
		return nil, err
	}
	s.stops = append(s.stops, s.redis.Kill)
	return s, nil
}

func (s *stage) build(ctx context.Context, module, program string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", s.dir+"/", program)
	build.Dir = module
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, output)
	}
	return nil
}

func (s *stage) clear() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

func (s *stage) database(ctx context.Context, name string) (string, error) {
	url, err := s.postgres.CreateDatabase(ctx, name)
	if err != nil {
		return "", err
	}
	return url, migrate.Up(ctx, url, slog.New(slog.DiscardHandler))
}

type process struct {
	pid           int
	addr, metrics string // host:port
	grpc          string // likewise, if it is on
}

var (
	apiListens  = regexp.MustCompile(`"check_addr":"([^"]+)","metrics_addr":"([^"]+)"(?:,"grpc_addr":"([^"]+)")?`)
	noopListens = regexp.MustCompile(`listening (\S+)()`)
)

// startAPI waits until the process is ready. Without a Redis URL buckets are in its memory. Options are environment
// variables.
func (s *stage) startAPI(ctx context.Context, database, redisURL string, options ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "api"))
	cmd.Env = slices.Concat([]string{
		"SLUICE_DATABASE_URL=" + database, "SLUICE_REDIS_URL=" + redisURL,
		"SLUICE_CHECK_ADDR=127.0.0.1:0", "SLUICE_METRICS_ADDR=127.0.0.1:0", "SLUICE_LOG_FORMAT=json",
		"SLUICE_STORE_BUDGET=" + budget.String(),
	}, options)
	p, err := s.start(cmd, apiListens)
	if err != nil {
		return nil, err
	}
	return p, p.awaitReady(ctx)
}

func (s *stage) startNoop(ctx context.Context, server string, like *process, request httpRequest) (*process, error) {
	recorded, err := like.record(ctx, request)
	if err != nil {
		return nil, err
	}
	return s.start(exec.CommandContext(ctx, filepath.Join(s.dir, "noop"), server, recorded), noopListens)
}

// start runs a program until the stage is cleared, and waits until it prints where it listens.
func (s *stage) start(cmd *exec.Cmd, listens *regexp.Regexp) (*process, error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("read what %s writes: %w", cmd.Path, err)
	}
	p, err := s.launch(cmd)
	if err != nil {
		return nil, err
	}
	var wrote strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		wrote.WriteString(lines.Text() + "\n")
		if at := listens.FindStringSubmatch(lines.Text()); at != nil {
			p.addr, p.metrics = at[1], at[2]
			if len(at) > 3 {
				p.grpc = at[3]
			}
			go func() { _, _ = io.Copy(io.Discard, stderr) }() // until the process ends
			return p, nil
		}
	}
	return nil, fmt.Errorf("%s ended before it listened; it wrote:\n%s", cmd.Path, wrote.String())
}

func (p *process) awaitReady(ctx context.Context) error {
	err := await(ctx, func() error {
		_, err := get(ctx, "http://"+p.addr+"/readyz")
		return err
	})
	if err != nil {
		return fmt.Errorf("the process at %s is not ready: %w", p.addr, err)
	}
	return nil
}

// awaitCheck waits until the process knows the key of a request.
func (p *process) awaitCheck(ctx context.Context, request httpRequest) error {
	return await(ctx, func() error {
		_, err := p.record(ctx, request)
		return err
	})
}

// await retries until do succeeds, and returns its last error after readyTimeout.
func await(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (s *stage) startAt(ctx context.Context, cmd *exec.Cmd, address string) (*process, error) {
	p, err := s.launch(cmd)
	if err != nil {
		return nil, err
	}
	p.addr = address
	var dialer net.Dialer
	err = await(ctx, func() error {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("%s does not serve: %w", cmd.Path, err)
		}
		return conn.Close()
	})
	return p, err
}

func (s *stage) launch(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	s.stops = append(s.stops, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &process{pid: cmd.Process.Pid}, nil
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

// record returns the answer to a request in the form that the no-op server reads.
func (p *process) record(ctx context.Context, request httpRequest) (string, error) {
	asked, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.addr+request.path,
		strings.NewReader(request.body))
	if err != nil {
		return "", fmt.Errorf("write a request to record: %w", err)
	}
	asked.Header.Set("Authorization", "Bearer "+request.token)
	asked.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		return "", fmt.Errorf("record an answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("record an answer: status %d: %s: %w", answer.StatusCode, body, err)
	}
	answer.Header.Del("Date") // net/http writes it
	recorded, err := json.Marshal(map[string]any{"Header": answer.Header, "Body": body})
	return string(recorded), err
}

// processor returns the processor time of the process and its children.
func (p *process) processor() (sum time.Duration, err error) {
	children, err := p.children()
	for _, pid := range append(children, p.pid) {
		text, readErr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if readErr != nil {
			return 0, fmt.Errorf("read a process's times: %w", readErr)
		}
		// The name may hold spaces. utime and stime are the 12th and 13th field after it, in hundredths of a second.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		user, err1 := strconv.ParseInt(fields[11], 10, 64)
		system, err2 := strconv.ParseInt(fields[12], 10, 64)
		sum += time.Duration(user+system) * 10 * time.Millisecond
		err = errors.Join(err, err1, err2)
	}
	return sum, err
}

// resident returns the bytes of memory of the process and its children. Shared memory counts once.
func (p *process) resident() (sum int64, err error) {
	children, err := p.children()
	for _, pid := range append(children, p.pid) {
		text, readErr := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if readErr != nil {
			return 0, fmt.Errorf("read a process's memory: %w", readErr)
		}
		for line := range strings.Lines(string(text)) {
			var kilobytes int64
			if n, _ := fmt.Sscanf(line, "Pss: %d kB", &kilobytes); n == 1 {
				sum += kilobytes << 10
			}
		}
	}
	return sum, err
}

func (p *process) children() (pids []int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.pid, p.pid))
	if err != nil {
		return nil, fmt.Errorf("read a process's children: %w", err)
	}
	for pid := range strings.FieldsSeq(string(text)) {
		number, err := strconv.Atoi(pid)
		if err != nil {
			return nil, fmt.Errorf("read a process's children: %w", err)
		}
		pids = append(pids, number)
	}
	return pids, nil
}

// shown returns the process's metrics, each as the sum of its series.
func (p *process) shown(ctx context.Context) (map[string]float64, error) {
	text, err := get(ctx, "http://"+p.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		name := line[:strings.IndexAny(line+" ", "{ ")]
		figure, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		sums[name] += figure
	}
	return sums, nil
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	return string(text), nil
}
