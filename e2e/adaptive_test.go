package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

const adaptiveRules = `rules:
  - {key_pattern: global, rate: 1000/second, burst_capacity: 1000, adapt: {backend: search, floor_percent: 10, p99_ms: 300}}`

func (a *api) report(t *testing.T, key, latency string) {
	t.Helper()
	body := fmt.Sprintf(`{"reports":[{"backend":"search","requests":100,"latency_ms":{%q:100}}]}`, latency)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.checks+"/v1/report",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+key)
	answer, err := a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != `{"accepted":1,"ignored":[]}` {
		t.Fatalf("a report was answered %d %s, %v", answer.StatusCode, text, err)
	}
}

var shareOf = regexp.MustCompile(`"share_percent":(\d+)`)

func (a *api) share(t *testing.T) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.checks+"/v1/explain",
		strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+a.key)
	answer, err := a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("an explanation was answered %d %s, %v", answer.StatusCode, text, err)
	}
	match := shareOf.FindSubmatch(text)
	if match == nil {
		return 100
	}
	percent, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return percent
}

func (a *api) leads(t *testing.T) bool {
	t.Helper()
	return a.metric(t, "sluice_adapt_leader") == 1
}

func TestAKilledControlLoopIsReplacedWithinSeconds(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, adaptiveRules)
	key := strings.TrimSpace(admin(t, tn.database, "create-key", "--tenant", tn.slug, "--name", "reporter",
		"--permissions", "report"))
	redis := devdbtest.Redis(t).URL()
	apis := []*api{tn.spawnAPI(t, redis), tn.spawnAPI(t, redis)}
	for _, a := range apis {
		eventually(t, patience, "an api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
	}
	slowly := func(what string, a *api, holds func() bool) {
		t.Helper()
		reported := time.Time{}
		eventually(t, patience, what, func() bool {
			if time.Since(reported) > time.Second {
				a.report(t, key, "1000")
				reported = time.Now()
			}
			return holds()
		})
	}
	leader, other := apis[0], apis[1]
	slowly("a rate to be lowered in both processes", other,
		func() bool { return apis[0].share(t) < 100 && apis[1].share(t) < 100 })
	if leader.leads(t) == other.leads(t) {
		t.Fatalf("leads: %t and %t", leader.leads(t), other.leads(t))
	}
	if other.leads(t) {
		leader, other = other, leader
	}
	before := other.share(t)

	if err := leader.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	slowly("the other process to lead", other, func() bool { return other.leads(t) })
	t.Logf("another process led %v after the leader was killed", time.Since(killed).Round(100*time.Millisecond))
	slowly("the other process to lower the rate further", other, func() bool { return other.share(t) < before })
	if log := other.stderr.String(); !strings.Contains(log, `"msg":"a rate was lowered"`) {
		t.Error("the log says nothing of the step")
	}
	// The backend is well again, so the rate rises.
	lowest := other.share(t)
	reported := time.Time{}
	eventually(t, 3*patience, "the rate to rise", func() bool {
		if time.Since(reported) > time.Second {
			other.report(t, key, "10")
			reported = time.Now()
		}
		share := other.share(t)
		lowest = min(lowest, share)
		return share > lowest
	})
	other.stop(t)
}

func TestRatesAreFixedAtOnce(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, adaptiveRules)
	key := strings.TrimSpace(admin(t, tn.database, "create-key", "--tenant", tn.slug, "--name", "reporter",
		"--permissions", "report"))
	a := tn.startAPI(t, devdbtest.Redis(t).URL())
	reported := time.Time{}
	eventually(t, patience, "a rate to be lowered", func() bool {
		if time.Since(reported) > time.Second {
			a.report(t, key, "1000")
			reported = time.Now()
		}
		return a.share(t) < 100
	})
	tn.apply(t, `rules: [{key_pattern: global, rate: 1000/second, burst_capacity: 1000}]`)
	eventually(t, changesArriveIn, "the configured rate", func() bool { return a.share(t) == 100 })
}
