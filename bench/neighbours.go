package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// importedUsers is how many users each import of a greedy tenant has.
const importedUsers = 50_000

// adminRequest is one request that a tenant repeats; the path is below the tenant's.
type adminRequest struct{ method, path, mediaType, body string }

// greedyRequests are the most expensive that each route allows.
func greedyRequests() []adminRequest {
	var users strings.Builder
	users.WriteString("user_id,plan\n")
	for i := range importedUsers {
		fmt.Fprintf(&users, "user-%d,free\n", i)
	}
	const simulation = `{"rules":[{"key_pattern":"user:{user_id}","rate_per_second":1,"rate_unit":"second","burst_capacity":5}],` +
		`"pattern":{"rate_per_second":1000,"duration_seconds":90}}`
	return []adminRequest{
		{"POST", "/users/import", "text/csv", users.String()},
		{"GET", "/export", "", ""},
		{"GET", "/violations?plan=none&limit=500", "", ""},
		{"GET", "/violations/export?plan=none", "", ""},
		{"GET", "/stats/top?by=endpoint&mode=shadow", "", ""},
		{"GET", "/stats/series?step_seconds=3600", "", ""},
		{"GET", "/stats/summary", "", ""},
		{"GET", "/audit/export", "", ""},
		{"POST", "/simulate", "application/json", simulation},
	}
}

// neighbours compares the latency of one tenant's requests alone and while two others ask for all that they may.
func neighbours(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	store, err := loadViolations(ctx, s.postgres, "neighbours", time.Now().UTC().Truncate(time.Minute), *violationRows, 1)
	if err != nil {
		return nil, err
	}
	store.Close()
	database := s.postgres.URL("neighbours")
	keys := map[string]string{}
	for _, tenant := range []string{"ours", "greedy", "quiet"} {
		if tenant != "ours" { // which has the violations
			if _, err := s.admin(ctx, database, "create-tenant", "--slug", tenant, "--name", tenant, "--default-plan", "free"); err != nil {
				return nil, err
			}
		}
		if keys[tenant], err = s.admin(ctx, database, "create-key", "--tenant", tenant, "--name", "bench", "--permissions", "manage"); err != nil {
			return nil, err
		}
	}
	p, err := s.startAdmin(ctx, database)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	p.ask(ctx, keys["ours"], "ours", adminRequest{"POST", "/plans", "application/json", `{"name":"free"}`}, 0)
	measured := map[string]adminRequest{"reads": {"GET", "/rules", "", ""}, "writes": {"POST", "/plans", "application/json", `{"name":"%d"}`}}
	length := time.Duration(rounds) * round
	quiet := p.latencies(ctx, keys["quiet"], "quiet", measured, length)
	loud, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	for _, tenant := range []string{"ours", "greedy"} {
		for _, request := range greedyRequests() {
			for range 4 {
				group.Go(func() {
					for loud.Err() == nil {
						p.ask(loud, keys[tenant], tenant, request, 0)
					}
				})
			}
		}
	}
	beside := p.latencies(ctx, keys["quiet"], "quiet", measured, length)
	end()
	group.Wait()
	for _, what := range []string{"reads", "writes"} {
		lines = append(lines,
			ratioLine("p99 of a tenant's "+what+" beside greedy ones ÷ alone, ms", "%.1f", late99(quiet[what].took), late99(beside[what].took), -2),
			line{what: "  not answered", baseline: fmt.Sprint(quiet[what].failed), ours: fmt.Sprint(beside[what].failed), target: "0", met: yesNo(beside[what].failed == 0)})
	}
	return lines, nil
}

// admin runs a command and returns what it prints.
func (s *stage) admin(ctx context.Context, database string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, "admin"), arguments...)
	cmd.Env = []string{"SLUICE_DATABASE_URL=" + database}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("admin %s: %w", arguments[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// answers are how long requests took, in milliseconds, and how many failed.
type answers struct {
	took   []float64
	failed int
}

// latencies repeats each request, one at a time, for so long.
func (p *process) latencies(ctx context.Context, key, tenant string, requests map[string]adminRequest, length time.Duration) map[string]*answers {
	measured := map[string]*answers{}
	var group sync.WaitGroup
	for what, request := range requests {
		a := &answers{}
		measured[what] = a
		group.Go(func() {
			for end := time.Now().Add(length); time.Now().Before(end) && ctx.Err() == nil; {
				began := time.Now()
				if status := p.ask(ctx, key, tenant, request, began.UnixNano()); status >= http.StatusBadRequest || status == 0 {
					a.failed++
				}
				a.took = append(a.took, float64(time.Since(began).Microseconds())/1000)
			}
		})
	}
	group.Wait()
	return measured
}

// ask sends a request, reads its answer to the end and returns its status; 0 without one. n makes bodies differ.
func (p *process) ask(ctx context.Context, key, tenant string, q adminRequest, n int64) (status int) {
	body := q.body
	if n != 0 && body != "" {
		body = fmt.Sprintf(body, n)
	}
	request, err := http.NewRequestWithContext(ctx, q.method, "http://"+p.addr+"/api/v1/tenants/"+tenant+q.path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if q.mediaType != "" {
		request.Header.Set("Content-Type", q.mediaType)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

func late99(took []float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}
