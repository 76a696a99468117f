package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/awake"
)

func newClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

type answer struct {
	status int
	header http.Header
	text   string
	decision
}

type decision struct {
	Allowed        bool    `json:"allowed"`
	Plan           *string `json:"plan"`
	ViolatedTier   *string `json:"violated_tier"`
	ViolatedRule   *string `json:"violated_rule"`
	ViolatedRuleID *int64  `json:"violated_rule_id"`
	Reason         *string `json:"reason"`
	RetryAfterMS   *int64  `json:"retry_after_ms"`
	Limit          *int64  `json:"limit"`
	Remaining      *int64  `json:"remaining"`
	ResetAfterMS   *int64  `json:"reset_after_ms"`
	Degraded       bool    `json:"degraded"`
	Tiers          []tier  `json:"tiers"`
}

type tier struct {
	RuleID       int64    `json:"rule_id"`
	Name         string   `json:"name"`
	Scope        string   `json:"scope"`
	KeyPattern   string   `json:"key_pattern"`
	Mode         string   `json:"mode"`
	Allowed      bool     `json:"allowed"`
	Limit        *int64   `json:"limit"`
	Remaining    *float64 `json:"remaining"`
	RetryAfterMS *int64   `json:"retry_after_ms"`
	ResetAfterMS *int64   `json:"reset_after_ms"`
}

func (d *decision) remaining(t *testing.T, pattern string) float64 {
	t.Helper()
	for i := range d.Tiers {
		if d.Tiers[i].KeyPattern == pattern && d.Tiers[i].Remaining != nil {
			return *d.Tiers[i].Remaining
		}
	}
	t.Fatalf("no tier %s with tokens among %+v", pattern, d.Tiers)
	return 0
}

func (a *api) try(body string) (answer, error) {
	request, err := http.NewRequest(http.MethodPost, "http://"+a.checks+"/v1/check", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+a.key)
	request.Header.Set("Content-Type", "application/json")
	return send(a.client, request)
}

func send(client *http.Client, request *http.Request) (answer, error) {
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(response)
}

func readAnswer(response *http.Response) (answer, error) {
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a := answer{status: response.StatusCode, header: response.Header, text: string(text)}
	if response.Header.Get("Content-Type") != "application/json" {
		return a, nil // a problem, or nothing
	}
	if err := json.Unmarshal(text, &a.decision); err != nil {
		return answer{}, fmt.Errorf("read the answer %s: %w", text, err)
	}
	return a, nil
}

// check asks a check that must be decided: allowed, denied, or refused for want of a store.
func (a *api) check(t *testing.T, body string) answer {
	t.Helper()
	got, err := a.try(body)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Tiers) == 0 && !got.Allowed {
		t.Fatalf("check %s: no decision, but %d %s", body, got.status, got.text)
	}
	return got
}

func (a *api) want(t *testing.T, body string, status int) answer {
	t.Helper()
	got := a.check(t, body)
	if got.status != status || got.Degraded {
		t.Fatalf("check %s: %d %s, want %d and not degraded", body, got.status, got.text, status)
	}
	return got
}

type readiness struct {
	status   int
	AgeMS    *int64 `json:"rules_age_ms"`
	Database string `json:"database"`
	Redis    string `json:"redis"`
}

func (a *api) ready(t *testing.T) readiness {
	t.Helper()
	return a.readyAt(t, a.checks)
}

func (a *api) readyAt(t *testing.T, addr string) readiness {
	t.Helper()
	response, err := a.client.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatalf("%v; the process wrote:\n%s", err, a.stderr.String())
	}
	defer func() { _ = response.Body.Close() }()
	state := readiness{status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(&state); err != nil {
		t.Fatalf("read /readyz: %v", err)
	}
	return state
}

func (a *api) metric(t *testing.T, name string) float64 {
	t.Helper()
	response, err := a.client.Get("http://" + a.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatalf("metric %s: %v", name, err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s (%v)", name, lines.Err())
	return 0
}

type asked struct {
	body     string
	at, took time.Duration
	got      answer
	err      error
}

// load asks from several callers that pause between two checks, and returns all that was asked.
func (a *api) load(watch *awake.Watch, bodies []string, callersEach int, pause time.Duration,
	stop <-chan struct{},
) []asked {
	const roomy = 1 << 16
	results := make(chan []asked)
	callers := 0
	for _, body := range bodies {
		for range callersEach {
			callers++
			go func() {
				tick := time.NewTicker(pause)
				defer tick.Stop()
				var mine []asked
				for {
					at := watch.Now()
					got, err := a.try(body)
					mine = append(mine, asked{body, at, watch.Since(at), got, err})
					select {
					case <-stop:
						results <- mine
						return
					case <-tick.C:
					}
				}
			}()
		}
	}
	all := make([]asked, 0, roomy)
	for range callers {
		all = append(all, <-results...)
	}
	return all
}
