package sluice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const testTimeout = 30 * time.Second

type gate struct {
	*httptest.Server
	arrived chan *held
}

type held struct {
	path   string
	body   string
	users  []string
	answer chan answer
}

func (h *held) let(status int) { h.answer <- answer{status: status} }

// limit allows n checks of a user and all of others.
func (h *held) limit(user string, n int) {
	h.answer <- answer{http.StatusOK, func(u string) bool {
		if u == user {
			n--
		}
		return u != user || n >= 0
	}}
}

type answer struct {
	status  int
	allowed func(user string) bool // nil: all
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{arrived: make(chan *held, 100)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &held{path: r.URL.Path, answer: make(chan answer, 1)}
		text, _ := io.ReadAll(r.Body)
		h.body = string(text)
		var body struct {
			UserID string `json:"user_id"`
			Checks []struct {
				UserID string `json:"user_id"`
			}
		}
		if err := json.Unmarshal(text, &body); err != nil {
			panic(err)
		}
		for _, c := range body.Checks {
			h.users = append(h.users, c.UserID)
		}
		if body.Checks == nil {
			h.users = []string{body.UserID}
		}
		g.arrived <- h
		select {
		case a := <-h.answer:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(a.status)
			writeAnswer(w, a, h.users, body.Checks != nil)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// writeAnswer gives each check its user as plan. Status 400 refuses the users whose names begin with bad.
func writeAnswer(w io.Writer, a answer, users []string, batch bool) {
	if a.status != http.StatusOK {
		var fields []string
		for i, user := range users {
			if strings.HasPrefix(user, "bad") {
				fields = append(fields, fmt.Sprintf(`{"pointer":"/checks/%d/user_id","detail":"is bad"}`, i))
			}
		}
		_, _ = fmt.Fprintf(w, `{"type":"urn:sluice:problem:invalid-request","errors":[%s]}`, strings.Join(fields, ","))
		return
	}
	var results []string
	for _, user := range users {
		if a.allowed != nil && !a.allowed(user) {
			results = append(results,
				`{"status":429,"allowed":false,"reason":"limit_exceeded","retry_after_ms":60000}`)
			continue
		}
		place := ""
		if user == "holder" {
			place = `,"reservation":"a place"`
		}
		results = append(results, fmt.Sprintf(`{"status":200,"allowed":true,"plan":%q%s}`, user, place))
	}
	if batch {
		_, _ = fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(results, ","))
		return
	}
	_, _ = io.WriteString(w, results[0])
}

func (g *gate) next(t *testing.T) *held {
	t.Helper()
	select {
	case h := <-g.arrived:
		return h
	case <-time.After(testTimeout):
		t.Fatal("no request arrived")
		return nil
	}
}

func newTestClient(t *testing.T, config Config) *Client {
	t.Helper()
	config.Key = testKey
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (q *queue) waitingChecks(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; runtime.Gosched() {
		q.mu.Lock()
		got := q.waiting
		q.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d checks wait, want %d", got, n)
		}
	}
}

type result1 struct {
	decision Decision
	err      error
}

func checkLater(ctx context.Context, client *Client, user string) <-chan result1 {
	result := make(chan result1, 1)
	go func() {
		d, err := client.Check(ctx, Check{UserID: user})
		result <- result1{d, err}
	}()
	return result
}

func TestChecksThatWaitGoTogether(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout})
	var results []<-chan result1
	var alone []*held
	for i := range inFlight {
		results = append(results, checkLater(t.Context(), client, fmt.Sprint(i)))
		alone = append(alone, g.next(t))
	}
	for i := inFlight; i < 20; i++ {
		results = append(results, checkLater(t.Context(), client, fmt.Sprint(i)))
	}
	client.queue.waitingChecks(t, 20-inFlight)
	alone[0].let(http.StatusOK)
	batch := g.next(t)
	if batch.path != "/v1/check/batch" || len(batch.users) != 20-inFlight {
		t.Errorf("%s has %d checks, want all %d that waited in a batch", batch.path, len(batch.users), 20-inFlight)
	}
	alone[1].let(http.StatusOK)
	batch.let(http.StatusOK)
	for i, result := range results {
		if got := <-result; got.err != nil || !got.decision.Allowed || got.decision.Plan != fmt.Sprint(i) {
			t.Errorf("check %d got %+v", i, got)
		}
	}
	if len(g.arrived) > 0 {
		t.Errorf("%d more requests were sent", len(g.arrived))
	}
}

func TestBatchesInFlightHaveAboutAsManyChecksEach(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout})
	const waiting = 3 * leastShare
	var results []<-chan result1
	var alone []*held
	for i := range inFlight {
		results = append(results, checkLater(t.Context(), client, fmt.Sprint(i)))
		alone = append(alone, g.next(t))
	}
	for i := range waiting {
		results = append(results, checkLater(t.Context(), client, fmt.Sprint(inFlight+i)))
	}
	client.queue.waitingChecks(t, waiting)
	alone[0].let(http.StatusOK)
	first := g.next(t)
	alone[1].let(http.StatusOK)
	second := g.next(t)
	// The first batch shares with the lone check in flight.
	if n, m := len(first.users), len(second.users); n+m != waiting || n != (waiting+2)/2 {
		t.Errorf("the batches have %d and %d checks, want about half of %d each", n, m, waiting)
	}
	first.let(http.StatusOK)
	second.let(http.StatusOK)
	for _, result := range results {
		if got := <-result; got.err != nil || got.decision.Source != FromServer {
			t.Errorf("a check got %+v", got)
		}
	}
}

// waits adds a check that has waited for the age.
func (q *queue) waits(user string, age time.Duration) *call {
	c := &call{done: make(chan struct{}, 1), since: time.Now().Add(-age), group: q.group(user)}
	c.question = question{body: user, identity: user, cost: 1}
	q.enqueue(c)
	return c
}

func (c *call) hasEnded() bool { return len(c.done) == 1 }

func (q *queue) looks(t *testing.T) {
	t.Helper()
	q.look()
	q.awaitEnds(t)
}

func (q *queue) awaitEnds(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; runtime.Gosched() {
		q.mu.Lock()
		ends := q.watch.ends
		q.mu.Unlock()
		if !ends {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the overdue calls do not end")
		}
	}
}

func TestACallThatStallsIsSeenWhileOverdueOnesWaitForCalm(t *testing.T) {
	t.Parallel()
	client := newTestClient(t, Config{URL: "http://" + closedPort(t), Timeout: time.Hour})
	q := &client.queue
	q.inFlight = mostInFlight // so that none is sent
	overdue := q.waits("overdue", 2*time.Hour)
	q.mu.Lock()
	q.watch.start(q)
	q.mu.Unlock()
	client.calm.mu.Lock() // the process is not calm
	q.look()
	stalls := q.waits("stalls", 30*time.Minute)
	q.look()
	if !stalls.stalled || overdue.hasEnded() {
		t.Errorf("the call is seen to stall: %v, the overdue one has ended: %v; want true, false", stalls.stalled,
			overdue.hasEnded())
	}
	client.calm.mu.Unlock()
	q.awaitEnds(t)
	if !overdue.hasEnded() {
		t.Error("the overdue call has not ended")
	}
	q.leave(stalls)
	if q.look(); len(q.turns) > 0 || q.watch.runs {
		t.Errorf("nobody waits, but %d groups have turns, and the watch runs: %v", len(q.turns), q.watch.runs)
	}
}

func TestTheWatchEndsOnlyWhatHasWaitedForTheTimeout(t *testing.T) {
	t.Parallel()
	q := &newTestClient(t, Config{URL: "http://" + closedPort(t), Timeout: time.Hour}).queue
	var all []*call
	for i, age := range []time.Duration{2 * time.Hour, time.Minute, 3 * time.Hour} {
		all = append(all, q.waits(fmt.Sprint("sent", i), age))
	}
	q.flights = []*flight{{q.take(2)}, {q.take(1)}}
	for _, age := range []time.Duration{2 * time.Hour, 30 * time.Minute, 0} {
		all = append(all, q.waits("waits", age))
	}
	q.inFlight = mostInFlight // so that none is sent
	q.mu.Lock()
	q.watch.start(q)
	q.mu.Unlock()
	for range 2 { // a second look must not time out twice
		q.looks(t)
	}
	for i, ended := range []bool{true, false, true, true, false, false} {
		if c := all[i]; c.left != ended || c.hasEnded() != ended {
			t.Errorf("call %d: its caller left: %v, told %d times; want %v", i, c.left, len(c.done), ended)
		}
	}
	if q.waiting != 2 || !all[4].stalled || all[5].stalled || !q.watch.runs {
		t.Errorf("%d calls wait, the first one stalled: %v, the second: %v, the watch runs: %v; "+
			"want 2 calls, true, false, true", q.waiting, all[4].stalled, all[5].stalled, q.watch.runs)
	}
	q.take(2)
	q.flights = nil
	if q.look(); q.watch.runs {
		t.Error("the watch runs though nobody waits")
	}
}

func TestAnOverdueCheckWaitsForTheAnswerToTheSameCheckIfTheServerAnswers(t *testing.T) {
	t.Parallel()
	denied := Decision{
		Status: http.StatusTooManyRequests, Reason: "too_many_in_flight", RetryAfter: time.Hour, Source: FromServer,
	}
	for name, test := range map[string]struct {
		age      time.Duration
		inFlight bool
		silence  time.Duration // since the server's last answer
		allowed  bool          // answers to the same check, now
		denied   bool
		closed   bool // the client
		waits    bool
		want     Source
	}{
		"the same is in flight":                   {age: 2 * time.Hour, inFlight: true, waits: true},
		"the same is in flight, for too long":     {age: 11 * time.Hour, inFlight: true},
		"the client is closed":                    {age: 2 * time.Hour, inFlight: true, closed: true},
		"the server is silent":                    {age: 2 * time.Hour, inFlight: true, silence: 90 * time.Minute},
		"nothing of the same is in flight":        {age: 2 * time.Hour},
		"the same was denied, without a promise":  {age: 2 * time.Hour, inFlight: true, denied: true, want: FromMemory},
		"the same was allowed":                    {age: 2 * time.Hour, inFlight: true, allowed: true, waits: true},
		"the same was denied, and it is too soon": {age: time.Minute, inFlight: true, denied: true, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &newTestClient(t, Config{URL: "http://" + closedPort(t), Timeout: time.Hour}).queue
			q.inFlight, q.answered = mostInFlight, time.Now().Add(-test.silence)
			if test.inFlight {
				q.waits("flood", test.age)
				q.flights = []*flight{{q.take(1)}}
				q.flights[0].calls[0].left = true
			}
			c := q.waits("flood", test.age)
			q.mu.Lock()
			switch {
			case test.allowed:
				q.landed(c.group, &c.question, &Decision{Allowed: true})
			case test.denied:
				q.landed(c.group, &c.question, &denied)
			}
			q.watch.start(q)
			if test.closed {
				q.client.end()
			}
			q.mu.Unlock()
			q.looks(t)
			if got := !c.hasEnded(); got != test.waits {
				t.Fatalf("it waits: %v, want %v", got, test.waits)
			}
			if c.decision.Source != test.want || c.left != (!test.waits && test.want == "") {
				t.Errorf("its decision is %+v, by the failure mode: %v", c.decision, c.left)
			}
			q.take(1) // so that Close finds nobody
			q.flights = nil
		})
	}
}

func TestAFloodOfOneUserIsDeniedByTheFirstDenials(t *testing.T) {
	t.Parallel()
	const burst, flood = 5, 12_000
	g := newGate(t)
	// Long enough that no request is added for checks that wait.
	client := newTestClient(t, Config{URL: g.URL, Timeout: 10 * testTimeout})
	var results []<-chan result1
	ask := func(user string) { results = append(results, checkLater(t.Context(), client, user)) }
	var alone []*held
	for range inFlight {
		ask("flood")
		alone = append(alone, g.next(t))
	}
	for range flood - inFlight - 1 {
		ask("flood")
	}
	client.queue.waitingChecks(t, flood-inFlight-1)
	ask("other")
	client.queue.waitingChecks(t, flood-inFlight)
	alone[0].let(http.StatusOK)
	next := g.next(t)
	if !slices.Contains(next.users, "other") {
		t.Errorf("a check behind the flood is not in the next batch of %d", len(next.users))
	}
	next.limit("flood", burst-inFlight) // the denials end all other checks of the flood
	passed := map[bool]int{}
	for i, result := range results[inFlight:] {
		got := <-result
		if got.err != nil || got.decision.Source != FromServer && got.decision.Source != FromMemory {
			t.Fatalf("check %d got %+v, want a decision", i, got)
		}
		passed[got.decision.Allowed]++
	}
	if passed[true] != burst-inFlight+1 {
		t.Errorf("%d of the flood and the other passed, want %d", passed[true], burst-inFlight+1)
	}
	alone[1].let(http.StatusOK)
	for _, result := range results[:inFlight] {
		<-result
	}
	if len(g.arrived) > 0 {
		t.Errorf("%d more requests were sent", len(g.arrived))
	}
}

func TestTooManyOfTheSameCheckAreDeniedWhileTheServerAnswers(t *testing.T) {
	t.Parallel()
	client := newTestClient(t, Config{URL: "http://" + closedPort(t), Timeout: time.Hour})
	q := &client.queue
	q.mu.Lock()
	for range maxWaiting {
		q.waits(`{"user_id":"flood"`, 0)
	}
	q.inFlight, q.answered = mostInFlight, time.Now()
	q.mu.Unlock()
	got, err := client.Check(t.Context(), Check{UserID: "flood"})
	if err != nil || got.Allowed || got.Status != http.StatusTooManyRequests || !errors.Is(got.Err, errTooMany) {
		t.Errorf("one too many got %+v, %v; want it denied", got, err)
	}
	q.mu.Lock()
	q.answered = time.Time{}
	q.mu.Unlock()
	got, err = client.Check(t.Context(), Check{UserID: "flood"})
	if err != nil || !got.Allowed || got.Source != FromFailureMode {
		t.Errorf("with a silent server one too many got %+v, %v; want the failure mode's", got, err)
	}
}

func TestALogSaysAStateOnce(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	var text strings.Builder
	client := newTestClient(t, Config{
		URL: g.URL, Timeout: testTimeout, Logger: slog.New(slog.NewTextHandler(&text, nil)),
	})
	now := time.Now()
	client.trouble.now = func() time.Time { return now }
	check := func(status int) {
		result := checkLater(t.Context(), client, "a")
		g.next(t).let(status)
		<-result
	}
	for range 10 {
		check(http.StatusInternalServerError)
		check(http.StatusOK)
	}
	now = now.Add(quietAfter)
	for range 2 {
		check(http.StatusOK)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "does not decide") ||
		!strings.Contains(lines[1], "decides again") || !strings.Contains(lines[1], "checks=10") {
		t.Errorf("the log is\n%s", text.String())
	}
}

func TestABadCheckFailsAloneInItsBatch(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout})
	first, second := checkLater(t.Context(), client, "a"), checkLater(t.Context(), client, "b")
	alone := []*held{g.next(t), g.next(t)}
	bad, good := checkLater(t.Context(), client, "bad"), checkLater(t.Context(), client, "good")
	other := checkLater(t.Context(), client, "other")
	client.queue.waitingChecks(t, 3)
	alone[0].let(http.StatusOK)
	g.next(t).let(http.StatusBadRequest)
	got := <-bad
	var failed *Error
	if !errors.As(got.err, &failed) || failed.Kind != KindRequest || len(failed.Fields) != 1 ||
		failed.Fields[0].Pointer != "/user_id" {
		t.Errorf("the bad check got %+v, want an error at /user_id", got)
	}
	if again := g.next(t); len(again.users) != 2 {
		t.Errorf("then %v are asked, want the other two", again.users)
	} else {
		again.let(http.StatusOK)
	}
	alone[1].let(http.StatusOK)
	for _, result := range []<-chan result1{first, second, good, other} {
		if got := <-result; got.err != nil || got.decision.Source != FromServer {
			t.Errorf("a good check got %+v", got)
		}
	}
}

func TestRequestsThatHangHoldUpOnlyTheirOwnChecks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: 2 * time.Second})
	hanging := []<-chan result1{checkLater(t.Context(), client, "a"), checkLater(t.Context(), client, "b")}
	g.next(t)
	g.next(t)
	later := checkLater(t.Context(), client, "later")
	g.next(t).let(http.StatusOK) // though no other has ended
	if got := <-later; got.decision.Source != FromServer {
		t.Errorf("the later check got %+v", got)
	}
	for _, result := range hanging {
		if got := <-result; got.decision.Source != FromFailureMode || !got.decision.Allowed {
			t.Errorf("a check whose request hangs got %+v", got)
		}
	}
}

func TestACallerThatLeavesTakesItsCheckAlong(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout})
	checkLater(t.Context(), client, "a")
	checkLater(t.Context(), client, "b")
	alone := []*held{g.next(t), g.next(t)}
	ctx, cancel := context.WithCancel(t.Context())
	leaver, stayer := checkLater(ctx, client, "leaver"), checkLater(t.Context(), client, "stayer")
	client.queue.waitingChecks(t, 2)
	cancel()
	if got := <-leaver; !errors.Is(got.err, context.Canceled) {
		t.Errorf("the leaver got %+v, want its context's error", got)
	}
	alone[0].let(http.StatusOK)
	next := g.next(t)
	if len(next.users) != 1 || next.users[0] != "stayer" {
		t.Errorf("%v are asked, want the stayer alone", next.users)
	}
	next.let(http.StatusOK)
	<-stayer
	alone[1].let(http.StatusOK)
}

func TestThePlaceOfACallerThatLeftIsFreedWhenItsAnswerComes(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout})
	checkLater(t.Context(), client, "a")
	checkLater(t.Context(), client, "b")
	alone := []*held{g.next(t), g.next(t)}
	ctx, cancel := context.WithCancel(t.Context())
	leaver, stayer := checkLater(ctx, client, "holder"), checkLater(t.Context(), client, "stayer")
	client.queue.waitingChecks(t, 2)
	alone[0].let(http.StatusOK)
	shared := g.next(t)
	cancel()
	if got := <-leaver; !errors.Is(got.err, context.Canceled) {
		t.Errorf("the leaver got %+v, want its context's error", got)
	}
	shared.let(http.StatusOK)
	release := g.next(t)
	if release.path != "/v1/settle" || release.body != `{"reservation":"a place"}` {
		t.Errorf("%s %s is asked, want the place to be released", release.path, release.body)
	}
	release.let(http.StatusOK)
	<-stayer
	alone[1].let(http.StatusOK)
}

func TestOneCheckAfterAnotherAsksAServerThatFailsOnlyAfterPauses(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(context.Context, *Client) (Decision, error){
		"check": func(ctx context.Context, c *Client) (Decision, error) { return c.Check(ctx, Check{}) },
		"batch": func(ctx context.Context, c *Client) (Decision, error) {
			all, err := c.CheckBatch(ctx, []Check{{}})
			return all[0], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout, FailureMode: Closed})
			b, now := &client.queue.breaker, time.Now()
			if name == "batch" {
				b = &client.queue.batches
			}
			b.timeout, b.now = 100*time.Millisecond, func() time.Time { return now }
			later := func() <-chan result1 {
				result := make(chan result1, 1)
				go func() {
					d, err := check(t.Context(), client)
					result <- result1{d, err}
				}()
				return result
			}
			atOnce := func() {
				t.Helper()
				for range 100 {
					if got, err := check(t.Context(), client); err != nil || got.Source != FromFailureMode ||
						got.Status != http.StatusServiceUnavailable {
						t.Fatalf("a check got %+v, %v; want the failure mode's denial", got, err)
					}
				}
				if len(g.arrived) > 0 {
					t.Fatalf("%d requests were sent during a pause", len(g.arrived))
				}
			}
			ask := func(status int) {
				t.Helper()
				result := later()
				g.next(t).let(status)
				if got := <-result; (got.decision.Source == FromServer) != (status == http.StatusOK) {
					t.Errorf("with status %d a check got %+v", status, got)
				}
			}
			for range failuresUntilProbing {
				ask(http.StatusInternalServerError)
			}
			for _, ms := range []int{100, 200, 400, 800, 1000, 1000} {
				pause := time.Duration(ms) * time.Millisecond
				if b.pause != pause || b.next.Sub(now) < pause/2 || b.next.Sub(now) > pause {
					t.Errorf("the pause is %v, and the next probe in %v; want %v and half of it or more", b.pause,
						b.next.Sub(now), pause)
				}
				atOnce()
				now = now.Add(pause)
				probe := later()
				probing := g.next(t)
				atOnce()
				probing.let(http.StatusInternalServerError)
				<-probe
			}
			now = now.Add(maxPause)
			for range 3 {
				ask(http.StatusOK)
			}
		})
	}
}

func TestBatchesThatTimeOutLeaveSingleChecksToTheServer(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: 20 * time.Millisecond})
	now := time.Now()
	client.queue.batches.now = func() time.Time { return now }
	for i := range failuresUntilProbing + 1 {
		all, err := client.CheckBatch(t.Context(), []Check{{}, {}})
		if err != nil || errors.Is(all[0].Err, errProbing) != (i == failuresUntilProbing) {
			t.Errorf("batch %d got %+v, %v", i, all, err)
		}
	}
	for range failuresUntilProbing - 1 {
		if got, err := client.Check(t.Context(), Check{}); err != nil || errors.Is(got.Err, errProbing) {
			t.Fatalf("a check got %+v, %v; want it to be sent", got, err)
		}
	}
}

func TestNobodyWaitsLongerThanTheTimeoutAndAllRecover(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	var hang atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Checks []struct{} }
		text, _ := io.ReadAll(r.Body) // a server only then notices that the client leaves
		if hang.Load() {
			<-r.Context().Done()
			return
		}
		_ = json.Unmarshal(text, &body) // always valid
		w.Header().Set("Content-Type", "application/json")
		writeAnswer(w, answer{status: http.StatusOK}, make([]string, max(1, len(body.Checks))), body.Checks != nil)
	}))
	defer server.Close()
	client := newTestClient(t, Config{URL: server.URL, Timeout: timeout})
	var log strings.Builder
	client.config.Logger = slog.New(slog.NewTextHandler(&log, nil))

	load := func(n int) (longest time.Duration, served, fallen int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				for range n {
					began := time.Now()
					d, err := client.Check(t.Context(), Check{UserID: fmt.Sprint(i)})
					took := time.Since(began)
					mu.Lock()
					longest = max(longest, took)
					switch {
					case err != nil || !d.Allowed:
						t.Errorf("%+v, %v", d, err)
					case d.Source == FromServer:
						served++
					default:
						fallen++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return longest, served, fallen
	}
	if _, served, _ := load(10); served == 0 {
		t.Error("the server answered nobody")
	}
	hang.Store(true)
	longest, served, fallen := load(5)
	t.Logf("while the server hangs: longest wait %v, %d served, %d by the failure mode", longest, served, fallen)
	if served != 0 || fallen != 5*64 {
		t.Errorf("while the server hangs %d were served and %d fell back, want 0 and %d", served, fallen, 5*64)
	}
	// A busy machine gets up to longTimeouts, and is slow as well.
	if longest > testTimeout {
		t.Errorf("a caller waited %v, want about %v", longest, timeout)
	}
	hang.Store(false)
	for deadline := time.Now().Add(testTimeout); ; {
		d, _ := client.Check(t.Context(), Check{UserID: "1"})
		if d.Source == FromServer && strings.Contains(log.String(), "decides again") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never recovered")
		}
	}
	if text := log.String(); !strings.Contains(text, "does not decide") {
		t.Errorf("the log is:\n%s", text)
	}
}

func TestCloseLeavesNoGoroutineBehind(t *testing.T) { // not parallel: counts goroutines
	g := newGate(t)
	before := runtime.NumGoroutine()
	client := newTestClient(t, Config{URL: g.URL, Timeout: 500 * time.Millisecond})
	var results []<-chan result1
	for i := range 10 {
		results = append(results, checkLater(t.Context(), client, fmt.Sprint(i)))
	}
	client.queue.waitingChecks(t, 10-inFlight)
	client.Close()
	for _, result := range results {
		if got := <-result; got.decision.Source != FromFailureMode {
			t.Errorf("%+v, want the failure mode's decision", got)
		}
	}
	if d, err := client.Check(t.Context(), Check{}); err != nil || d.Source != FromFailureMode {
		t.Errorf("after Close: %+v, %v", d, err)
	}
	g.CloseClientConnections()
	for deadline := time.Now().Add(testTimeout); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestMemoryOfDenialsIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := memory{longest: time.Minute, now: func() time.Time { return now }}
	d := Decision{
		Status: http.StatusTooManyRequests, Reason: "limit_exceeded", RetryAfter: time.Minute,
		Source: FromServer,
	}
	for i := range 3 * maxDenials {
		m.learn(&question{identity: fmt.Sprint(i), cost: 1}, &d)
	}
	if len(m.denials) > maxDenials {
		t.Errorf("%d denials are kept, want at most %d", len(m.denials), maxDenials)
	}
	if _, ok := m.recall(&question{identity: fmt.Sprint(3*maxDenials - 1), cost: 1}); !ok {
		t.Error("the last denial is forgotten")
	}
}

func TestConfigurationIsRefusedWithoutTheKey(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"no URL":              {Key: testKey},
		"no scheme":           {URL: "127.0.0.1:8080", Key: testKey},
		"a key in the URL":    {URL: "http://" + testKey + "@127.0.0.1", Key: testKey},
		"no key":              {URL: "http://127.0.0.1"},
		"a key with a line":   {URL: "http://127.0.0.1", Key: testKey + "\n"},
		"a negative time-out": {URL: "http://127.0.0.1", Key: testKey, Timeout: -1},
		"an unknown mode":     {URL: "http://127.0.0.1", Key: testKey, FailureMode: 7},
	} {
		_, err := New(config)
		if err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}

func TestACheckThatNoServerTakesIsRefusedUnsent(t *testing.T) {
	t.Parallel()
	client := newTestClient(t, Config{URL: "http://" + closedPort(t)})
	attributes, costs := map[string]string{}, map[string]float64{}
	for i := range 17 {
		attributes[fmt.Sprint("a", i)] = "x"
	}
	for i := range 8 {
		costs[fmt.Sprint("m", i)] = 1
	}
	type test struct {
		check   Check
		pointer string
	}
	tests := []test{
		{Check{UserID: "a\xff"}, "/user_id"},
		{Check{UserID: "a\x00"}, "/user_id"},
		{Check{UserID: strings.Repeat("ü", 129)}, "/user_id"},
		{Check{Plan: strings.Repeat("x", 257)}, "/plan"},
		{Check{Endpoint: strings.Repeat("x", 1025)}, "/endpoint"},
		{Check{Method: strings.Repeat("x", 33)}, "/method"},
		{Check{Method: "G T"}, "/method"},
		{Check{Attributes: attributes}, "/attributes"},
		{Check{Attributes: map[string]string{"a b": "x"}}, "/attributes"},
		{Check{Attributes: map[string]string{"": "x"}}, "/attributes"},
		{Check{Attributes: map[string]string{strings.Repeat("x", 65): "x"}}, "/attributes"},
		{Check{Attributes: map[string]string{"a": strings.Repeat("x", 257)}}, "/attributes/a"},
		{Check{Attributes: map[string]string{"a": "\xff"}}, "/attributes/a"},
		{Check{Attributes: map[string]string{"a": "\x00"}}, "/attributes/a"},
		{Check{Cost: -1}, "/cost"},
		{Check{Cost: 1.1e9}, "/cost"},
		{Check{Costs: costs}, "/costs"},
		{Check{Costs: map[string]float64{"USD": 1}}, "/costs"},
		{Check{Costs: map[string]float64{"requests": 1}}, "/costs"},
		{Check{Costs: map[string]float64{"usd": -1}}, "/costs/usd"},
	}
	for _, ip := range []string{"x", "1.2.3", "01.2.3.4", "1.2.3.4:80", "::1%eth0", "::1/64"} {
		tests = append(tests, test{Check{IP: ip}, "/ip"})
	}
	want := func(err error, pointer string, check Check) {
		t.Helper()
		var failed *Error
		if !errors.As(err, &failed) || failed.Kind != KindRequest || failed.Fields[0].Pointer != pointer {
			t.Errorf("%+v: %v, want an error of the request at %s", check, err, pointer)
		}
	}
	for _, c := range tests {
		_, err := client.Check(t.Context(), c.check)
		want(err, c.pointer, c.check)
		_, err = client.CheckBatch(t.Context(), []Check{{}, c.check})
		want(err, "/checks/1"+c.pointer, c.check)
	}
	_, err := client.Reserve(t.Context(), Check{}, 24*time.Hour+1)
	want(err, "/reserve_for", Check{})
}

type panicker struct {
	http.RoundTripper
	panics atomic.Bool
}

func (p *panicker) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.panics.Load() {
		panic("by the test")
	}
	return p.RoundTripper.RoundTrip(r)
}

func TestAPanicOfTheTransportIsTheFailureModesAndEndsNobody(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	transport := &panicker{RoundTripper: http.DefaultTransport}
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout, Transport: transport})
	first, second := checkLater(t.Context(), client, "1"), checkLater(t.Context(), client, "2")
	inFlight := []*held{g.next(t), g.next(t)}
	shared := []<-chan result1{checkLater(t.Context(), client, "3"), checkLater(t.Context(), client, "4")}
	client.queue.waitingChecks(t, 2)
	transport.panics.Store(true)
	inFlight[0].let(http.StatusOK) // and the checks that wait go together
	for _, waiting := range shared {
		if got := <-waiting; got.err != nil || got.decision.Source == FromServer {
			t.Errorf("a check whose request panicked: %+v", got)
		}
	}
	func() {
		defer func() { _ = recover() }() // in the goroutine of its caller
		_, _ = client.Check(t.Context(), Check{UserID: "5"})
	}()
	inFlight[1].let(http.StatusOK)
	<-first
	<-second
	transport.panics.Store(false)
	last := checkLater(t.Context(), client, "6")
	g.next(t).let(http.StatusOK)
	if got := <-last; got.decision.Source != FromServer {
		t.Errorf("a check after that: %+v", got)
	}
	if client.queue.inFlight != 0 {
		t.Errorf("%d requests are in flight", client.queue.inFlight)
	}
}
