package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func (a *api) settle(t *testing.T, reservation string, cost float64) bool {
	t.Helper()
	body := fmt.Sprintf(`{"reservation":%q,"cost":%g}`, reservation, cost)
	request, err := http.NewRequest(http.MethodPost, "http://"+a.checks+"/v1/settle", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+a.key)
	request.Header.Set("Content-Type", "application/json")
	got, err := send(a.client, request)
	var settled struct{ Settled *bool }
	if err == nil {
		err = json.Unmarshal([]byte(got.text), &settled)
	}
	if err != nil || settled.Settled == nil {
		t.Fatalf("settle: %d %s (%v)", got.status, got.text, err)
	}
	return *settled.Settled
}

func TestAKilledProcessLosesNoPlaceAndChargesNothingTwice(t *testing.T) {
	t.Parallel()
	t.Run("in Redis", func(t *testing.T) {
		t.Parallel()
		killAHolder(t, devdbtest.Redis(t).URL())
	})
	t.Run("in PostgreSQL", func(t *testing.T) {
		t.Parallel()
		killAHolder(t, "", "--buckets=postgres")
	})
}

func killAHolder(t *testing.T, redis string, options ...string) {
	t.Helper()
	const hold = 5 * time.Second
	tn := newTenant(t, `
rules:
  - {key_pattern: "user:{user_id}", algorithm: concurrency, burst_capacity: 2, max_hold: 5s}
  - {key_pattern: global, rate: 1/hour, burst_capacity: 1000}
`)
	survivor := tn.startAPI(t, redis, options...)
	killed := tn.spawnAPI(t, redis, options...)
	eventually(t, patience, "the process to be ready", func() bool { return killed.ready(t).status == http.StatusOK })

	var reservations [2]string
	for i := range reservations {
		got := killed.want(t, `{"user_id":"42","cost":10,"reserve":true}`, http.StatusOK)
		var body struct{ Reservation string }
		if err := json.Unmarshal([]byte(got.text), &body); err != nil || body.Reservation == "" {
			t.Fatalf("no reservation in %s (%v)", got.text, err)
		}
		reservations[i] = body.Reservation
	}
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-killed.ended

	const look = `{"user_id":"42","cost":0}`
	left := func(want float64) {
		t.Helper()
		got := survivor.want(t, look, http.StatusOK)
		if tokens := got.remaining(t, "global"); tokens < want || tokens > want+0.1 {
			t.Errorf("%g tokens left, want %g", tokens, want)
		}
	}
	left(1000 - 10 - 10)
	if !survivor.settle(t, reservations[0], 4) || survivor.settle(t, reservations[0], 4) {
		t.Error("a reservation of the killed process is not settled exactly once")
	}
	left(1000 - 4 - 10)
	eventually(t, 2*hold, "both places to be free", func() bool {
		got := survivor.want(t, look, http.StatusOK)
		return got.remaining(t, "user:{user_id}") == 2
	})
	left(1000 - 4 - 10) // the reservation outlives the place
	if !survivor.settle(t, reservations[1], 13) || survivor.settle(t, reservations[1], 13) {
		t.Error("a reservation whose place was forgotten is not settled exactly once")
	}
	left(1000 - 4 - 13)
}
