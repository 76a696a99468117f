package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// newSDK returns a Go client with a longer time-out than usual, because the machine may be busy.
func (a *api) newSDK(t *testing.T, config sluice.Config) *sluice.Client {
	t.Helper()
	config.URL, config.Logger = "http://"+a.checks, slog.New(slog.DiscardHandler)
	if config.Key == "" {
		config.Key = a.key
	}
	if config.Timeout == 0 {
		config.Timeout = patience
	}
	client, err := sluice.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestTheGoClientLimitsAndRemembers(t *testing.T) {
	t.Parallel()
	a := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/second, burst_capacity: 3}\n").startAPI(t,
		devdbtest.Redis(t).URL())
	client := a.newSDK(t, sluice.Config{})
	var denied sluice.Decision
	for passed := 0; denied.Status == 0; passed++ {
		d, err := client.Check(t.Context(), sluice.Check{UserID: "42", Endpoint: "/api/reports"})
		switch {
		case err != nil || d.Source != sluice.FromServer:
			t.Fatalf("%+v, %v", d, err)
		case !d.Allowed:
			denied = d
		case passed > 10:
			t.Fatal("it never denied")
		}
	}
	if denied.Reason != "limit_exceeded" || denied.ViolatedRule != "user:{user_id}" || denied.Limit != 3 ||
		denied.Remaining != 0 ||
		denied.RetryAfter <= 0 || denied.RetryAfter > time.Second || len(denied.Tiers) != 1 {
		t.Errorf("the denial is %+v", denied)
	}
	<-time.After(denied.RetryAfter) // the promise is that this very wait is enough
	if d, err := client.Check(t.Context(), sluice.Check{UserID: "42", Endpoint: "/api/reports"}); err != nil ||
		!d.Allowed {
		t.Errorf("after the wait: %+v, %v", d, err)
	}
	decisions, err := client.CheckBatch(t.Context(),
		[]sluice.Check{{UserID: "b", Cost: 2}, {UserID: "b", Cost: 2}, {UserID: "b", Look: true}})
	if err != nil || !decisions[0].Allowed || decisions[1].Allowed || !decisions[2].Allowed {
		t.Errorf("the batch: %+v, %v", decisions, err)
	}
}

func TestTheGoClientSharesRequestsAndKeepsAnswersApart(t *testing.T) {
	t.Parallel()
	a := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/hour, burst_capacity: 5}\n").startAPI(t,
		devdbtest.Redis(t).URL())
	client := a.newSDK(t, sluice.Config{})
	const users, each = 20, 9
	var passed [users]atomic.Int64
	var all sync.WaitGroup
	for user := range users {
		for range each {
			all.Go(func() {
				d, err := client.Check(t.Context(), sluice.Check{UserID: fmt.Sprint(user)})
				if err != nil || d.Source == sluice.FromFailureMode || d.Degraded {
					t.Errorf("%+v, %v", d, err)
				}
				if d.Allowed {
					passed[user].Add(1)
				}
			})
		}
	}
	all.Go(func() { // its neighbours in the batch are not to suffer
		_, err := client.Check(t.Context(), sluice.Check{UserID: "x", Plan: "none"})
		var invalid *sluice.Error
		if !errors.As(err, &invalid) || invalid.Kind != sluice.KindRequest || len(invalid.Fields) != 1 ||
			invalid.Fields[0].Pointer != "/plan" {
			t.Errorf("the check that is not valid: %v", err)
		}
	})
	all.Wait()
	for user := range passed {
		if got := passed[user].Load(); got != 5 {
			t.Errorf("user %d passed %d times, want 5", user, got)
		}
	}
}

func TestTheGoClientWithAWrongKeySaysSoAndFollowsItsFailureMode(t *testing.T) {
	t.Parallel()
	a := newTenant(t, "rules:\n  - {key_pattern: global, rate: 1/second, burst_capacity: 5}\n").startAPI(t,
		devdbtest.Redis(t).URL())
	client := a.newSDK(t, sluice.Config{Key: "slk_0123_0123456789abcdef0123456789abcdef", FailureMode: sluice.Closed})
	d, err := client.Check(t.Context(), sluice.Check{UserID: "42"})
	var failed *sluice.Error
	if err != nil || d.Allowed || d.Status != http.StatusServiceUnavailable || !errors.As(d.Err, &failed) ||
		failed.Kind != sluice.KindKey {
		t.Errorf("%+v, %v", d, err)
	}
	if strings.Contains(d.Err.Error(), "0123456789abcdef") {
		t.Errorf("the error names the key: %v", d.Err)
	}
}

func TestTheGoClientRidesOutARestart(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1000000/second, burst_capacity: 1000000}\n")
	redis := devdbtest.Redis(t).URL()
	a := tn.spawnAPI(t, redis)
	eventually(t, patience, "the api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
	const timeout = 250 * time.Millisecond
	const longest = 10 * timeout // while the process is too busy to read answers
	client := a.newSDK(t, sluice.Config{Timeout: timeout})
	watch := awake.Start()
	defer watch.Stop()

	var served, fallen atomic.Int64
	stop := make(chan struct{})
	var load sync.WaitGroup
	for user := range 16 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := watch.Now()
				d, err := client.Check(t.Context(), sluice.Check{UserID: fmt.Sprint(user)})
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v: open is to pass", d, err)
					return
				}
				if took := watch.Since(began); took > longest {
					t.Errorf("a check took %s, more than %s", took, longest)
				}
				if d.Source == sluice.FromServer {
					served.Add(1)
				} else {
					fallen.Add(1)
					<-time.After(time.Millisecond) // refused connections cost nothing, and would fill the machine
				}
			}
		})
	}
	grows := func(n *atomic.Int64) func() bool {
		before := n.Load()
		return func() bool { return n.Load() > before+100 }
	}
	eventually(t, patience, "checks to be served", grows(&served))
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-a.ended
	eventually(t, patience, "the failure mode to decide", grows(&fallen))
	tn.startAPI(t, redis, "--check-addr", a.checks)
	eventually(t, patience, "checks to be served again", grows(&served))
	close(stop)
	load.Wait()
}

func TestTheGoClientReservesSettlesAndShowsUsage(t *testing.T) {
	t.Parallel()
	a := newTenant(t, "rules:\n  - {key_pattern: \"user:{user_id}\", rate: 1/hour, burst_capacity: 100}\n").startAPI(t,
		devdbtest.Redis(t).URL())
	client := a.newSDK(t, sluice.Config{})
	used := func() float64 {
		t.Helper()
		text, err := client.Usage(t.Context(), "a b&c", "")
		var usage struct {
			UserID string `json:"user_id"`
			Limits []struct{ Used float64 }
		}
		if err != nil || json.Unmarshal(text, &usage) != nil || usage.UserID != "a b&c" || len(usage.Limits) != 1 {
			t.Fatalf("the usage is %s, %v", text, err)
		}
		return math.Round(usage.Limits[0].Used)
	}
	wantSettled := func(want sluice.Settlement, got sluice.Settlement, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	reserve := func(cost float64) string {
		t.Helper()
		d, err := client.Reserve(t.Context(), sluice.Check{UserID: "a b&c", Cost: cost}, 90*time.Second)
		if err != nil || !d.Allowed || d.Reservation == "" {
			t.Fatalf("%+v, %v", d, err)
		}
		return d.Reservation
	}
	id := reserve(50)
	extended, err := client.Extend(t.Context(), id)
	wantSettled(sluice.Settlement{Extended: true}, extended, err)
	settled, err := client.Settle(t.Context(), id, 12.5)
	wantSettled(sluice.Settlement{Settled: true, Charged: 12.5}, settled, err)
	again, err := client.Settle(t.Context(), id, 12.5)
	wantSettled(sluice.Settlement{}, again, err)
	late, err := client.Extend(t.Context(), id)
	wantSettled(sluice.Settlement{}, late, err)
	cancelled, err := client.Cancel(t.Context(), reserve(5))
	wantSettled(sluice.Settlement{Settled: true}, cancelled, err)
	released, err := client.Release(t.Context(), reserve(7.5))
	wantSettled(sluice.Settlement{Settled: true, Charged: 7.5}, released, err)
	if got := used(); got != 20 {
		t.Errorf("%v tokens are used, want 20", got)
	}
	d, err := client.Reserve(t.Context(), sluice.Check{Endpoint: "/nobody"}, 0)
	if err != nil || !d.Allowed || d.Reservation == "" {
		t.Errorf("where no limit matches: %+v, %v", d, err)
	}
	counted, err := client.Settle(t.Context(), d.Reservation, 1)
	wantSettled(sluice.Settlement{Settled: true, Charged: 1}, counted, err)
	nothing, err := client.Settle(t.Context(), "", 1)
	wantSettled(sluice.Settlement{}, nothing, err)
}
