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

// testTimeout bounds a test's waits for events without a promised time.
const testTimeout = 30 * time.Second

// gate is a server that answers on command.
type gate struct {
	*httptest.Server
	arrived chan *held
}

// held is a request that has arrived. Its checks are answered by let.
type held struct {
	path   string
	body   string
	users  []string
	answer chan int
}

func (h *held) let(status int) { h.answer <- status }

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{arrived: make(chan *held, 100)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &held{path: r.URL.Path, answer: make(chan int, 1)}
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
		case status := <-h.answer:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			writeAnswer(w, status, h.users, body.Checks != nil)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(g.Close)
	return g
}

// writeAnswer allows all checks, naming each by its plan. On 400 it refuses those of users called bad.
func writeAnswer(w io.Writer, status int, users []string, batch bool) {
	if status != http.StatusOK {
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

// waitingChecks waits until n checks are in the queue.
func (q *queue) waitingChecks(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); ; runtime.Gosched() {
		q.mu.Lock()
		got := len(q.waiting)
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

func TestTheWatchEndsOnlyWhatHasWaitedForTheTimeout(t *testing.T) {
	t.Parallel()
	q := &newTestClient(t, Config{URL: "http://" + closedPort(t), Timeout: time.Hour}).queue
	callOf := func(age time.Duration) *call {
		return &call{done: make(chan struct{}, 1), since: time.Now().Add(-age)}
	}
	q.waiting = []*call{callOf(2 * time.Hour), callOf(30 * time.Minute), callOf(0)}
	q.flights = []*flight{{[]*call{callOf(2 * time.Hour), callOf(time.Minute)}}, {[]*call{callOf(3 * time.Hour)}}}
	q.inFlight = mostInFlight // so that none is sent
	all := slices.Concat(q.waiting, q.flights[0].calls, q.flights[1].calls)
	q.mu.Lock()
	q.watch.start(q)
	q.mu.Unlock()
	for range 2 { // a second look must not time out twice
		q.look()
	}
	for i, ended := range []bool{true, false, false, true, false, true} {
		if c := all[i]; c.left != ended || len(c.done) == 1 != ended {
			t.Errorf("call %d: its caller left: %v, told %d times; want %v", i, c.left, len(c.done), ended)
		}
	}
	if len(q.waiting) != 2 || !q.waiting[0].stalled || q.waiting[1].stalled || !q.watch.runs {
		t.Errorf("%d calls wait, the first one stalled: %v, the watch runs: %v; want 2 calls, true, true",
			len(q.waiting), len(q.waiting) > 0 && q.waiting[0].stalled, q.watch.runs)
	}
	q.waiting, q.flights = nil, nil
	if q.look(); q.watch.runs {
		t.Error("the watch runs though nobody waits")
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

func TestOnlyProbesWaitForAServerThatFails(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	client := newTestClient(t, Config{URL: g.URL, Timeout: testTimeout, FailureMode: Closed})
	for range failuresUntilProbing {
		result := checkLater(t.Context(), client, "a")
		g.next(t).let(http.StatusInternalServerError)
		<-result
	}
	probe := checkLater(t.Context(), client, "probe")
	probing := g.next(t)
	if got := <-checkLater(t.Context(), client, "b"); got.decision.Source != FromFailureMode ||
		got.decision.Status != http.StatusServiceUnavailable {
		t.Errorf("beside a probe a check got %+v, want the failure mode's denial at once", got)
	}
	probing.let(http.StatusOK)
	if got := <-probe; got.decision.Source != FromServer {
		t.Errorf("the probe got %+v", got)
	}
	result := checkLater(t.Context(), client, "c")
	g.next(t).let(http.StatusOK)
	if got := <-result; got.decision.Source != FromServer {
		t.Errorf("after the probe a check got %+v", got)
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
		writeAnswer(w, http.StatusOK, make([]string, max(1, len(body.Checks))), body.Checks != nil)
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
	// Processors are scarce where tests run in parallel, which delays this.
	if longest > timeout+time.Second {
		t.Errorf("a caller waited %v, want at most %v", longest, timeout)
	}
	hang.Store(false)
	for deadline := time.Now().Add(testTimeout); ; {
		if d, _ := client.Check(t.Context(), Check{UserID: "1"}); d.Source == FromServer {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it never recovered")
		}
	}
	if text := log.String(); strings.Count(text, "does not decide") < 1 || !strings.Contains(text, "decides again") {
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

func TestTextThatIsNoUTF8IsRefusedUnsent(t *testing.T) {
	t.Parallel()
	client := newTestClient(t, Config{URL: "http://" + closedPort(t)})
	for _, check := range []Check{{UserID: "a\xff"}, {Attributes: map[string]string{"x": "\xff"}}} {
		_, err := client.Check(t.Context(), check)
		var failed *Error
		if !errors.As(err, &failed) || failed.Kind != KindRequest {
			t.Errorf("%+v: %v, want an error of the request", check, err)
		}
	}
}

// panicker is a transport with a bug.
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
