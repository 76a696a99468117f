package sluice

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce/lend"
)

const handlePatience = 60 * time.Second

// lender is a server that lends as a test says, and records reports.
type lender struct {
	*httptest.Server
	mu       sync.Mutex
	how      string
	amount   decimal // of each grant
	pauseUS  int64
	mode     string
	status   int    // of problems; 0 answers
	inFront  string // a proxy's answer instead of the server's
	requests []lenderRequest
	checks   int // at /v1/check
	allowed  int64
	denied   map[int64]int64
	onReport func() // if not nil, called with each report of allowed checks
}

type lenderRequest struct {
	Holder string
	Checks []struct {
		Check   json.RawMessage
		Allowed int64
		Denied  []ruleDenials
	}
	Buckets []bucketAsk
}

func newLender(t testing.TB) *lender {
	t.Helper()
	l := &lender{how: howLease, amount: 1e6 * oneToken, mode: "enforce", denied: map[int64]int64{}}
	l.Server = httptest.NewServer(http.HandlerFunc(l.answer))
	t.Cleanup(l.Close)
	return l
}

func (l *lender) answer(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFront != "" {
		defer func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = io.WriteString(w, l.inFront)
		}(w)
		w = httptest.NewRecorder()
	}
	w.Header().Set("Content-Type", "application/json")
	if l.status != 0 {
		w.WriteHeader(l.status)
		_, _ = io.WriteString(w, `{"type":"urn:sluice:problem:x","title":"x"}`)
		return
	}
	if r.URL.Path != leasesPath {
		l.checks++
		_, _ = io.WriteString(w, `{"allowed":true}`)
		return
	}
	var request lenderRequest
	// a server refuses null
	if err := json.Unmarshal(text, &request); err != nil || bytes.Contains(text, []byte("null")) {
		panic("a client sent " + string(text))
	}
	l.requests = append(l.requests, request)
	answer := leaseAnswer{ValidMS: 1000}
	answer.Checks = slices.Grow(answer.Checks, len(request.Checks))[:len(request.Checks)]
	for i := range request.Checks {
		l.allowed += request.Checks[i].Allowed
		if request.Checks[i].Allowed > 0 && l.onReport != nil {
			l.onReport()
		}
		for _, d := range request.Checks[i].Denied {
			l.denied[d.RuleID] += d.Count
		}
		answer.Checks[i].How = l.how
		switch l.how {
		case howLease:
			answer.Checks[i].Buckets = []int{0}
		case howBlock:
			answer.Checks[i].BlockedBy = &leaseRule{
				RuleID: 13, Scope: "user", KeyPattern: "user:{user_id}",
				Mode: "enforce",
			}
		}
	}
	if l.how == howLease && len(request.Checks) > 0 {
		answer.Buckets = slices.Grow(answer.Buckets, 1)[:1]
		b := &answer.Buckets[0]
		b.Bucket = "12:42"
		b.leaseRule = leaseRule{
			RuleID: 12, Scope: "user", KeyPattern: "user:{user_id}", Mode: l.mode,
			RatePerSecond: 1e6, Burst: 1e6,
		}
		if len(request.Buckets) > 0 && request.Buckets[0].Want > 0 {
			b.Grant = &bucketGrant{Amount: l.amount, Slot: 7, Epoch: 5, Holders: 1, PauseUS: l.pauseUS}
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (l *lender) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *lender) client(t testing.TB) *Client {
	t.Helper()
	c, err := New(Config{URL: l.URL, Key: "slk_test_key", Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.leases.timeout = handlePatience // a request that timed out is not counted as reported
	t.Cleanup(c.Close)
	return c
}

func handleOf(t testing.TB, c *Client, check Check) *Handle {
	t.Helper()
	h, err := c.Handle(check)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func until(t testing.TB, h *Handle, want Verdict) (tries, passed int64) {
	t.Helper()
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for deadline := time.Now().Add(handlePatience); ; {
		tries++
		got := h.Try()
		if got == Allowed {
			passed++
		}
		if got == want {
			return tries, passed
		}
		if time.Now().After(deadline) {
			t.Fatalf("no try is %v", want)
		}
		<-pause.C
	}
}

func TestAHandleDecidesWhatItHoldsTokensFor(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	for range hotAfter - 1 {
		if got := h.Try(); got != Undecided {
			t.Fatalf("a handle that is seldom used is %v", got)
		}
	}
	_, passed := until(t, h, Allowed)
	for range 1000 {
		if d, err := h.Check(t.Context()); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		} else if d.Source == FromLease {
			passed++
		}
	}
	c.Close() // reports the rest, and returns the tokens
	l.mu.Lock()
	defer l.mu.Unlock()
	if passed < 500 || l.allowed != passed {
		t.Errorf("%d checks were allowed, and %d reported", passed, l.allowed)
	}
	var spent, back decimal
	grants := decimal(0)
	for _, r := range l.requests {
		for _, b := range r.Buckets {
			if b.Want > 0 {
				grants++
			}
			for _, one := range b.Returns {
				spent += one.Spent
				back += one.Back
			}
		}
	}
	if spent != decimal(passed)*oneToken || spent+back != grants*l.amount {
		t.Errorf("of %d grants of %d tokens %d millionths were spent and %d given back, for %d checks", grants,
			l.amount/oneToken, spent, back, passed)
	}
	if got := h.Try(); got != Undecided {
		t.Errorf("after the end it is %v", got)
	}
}

func TestAHandleDeniesWhileTheBucketIsEmpty(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	l.amount, l.pauseUS = 0, 100_000
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	denied := int64(1)
	until(t, h, Denied)
	for range 10_000 {
		d, err := h.Check(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case d.Source != FromLease:
			continue
		case d.Allowed || d.Status != 429 || d.Reason != "limit_exceeded" || d.ViolatedRuleID != 12 ||
			d.RetryAfter <= 0 || d.Limit != 1e6:
			t.Fatalf("%+v", d)
		}
		denied++
	}
	c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if want := map[int64]int64{12: denied}; !maps.Equal(l.denied, want) || denied < 2 {
		t.Errorf("the server counts %v, want %v", l.denied, want)
	}
}

// The headers are those of the server for the same buckets.
func TestADecisionOfAHandleHasTheHeadersOfTheServer(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	c := l.client(t)
	h, err := c.Handle(Check{UserID: "42"})
	if err != nil {
		t.Fatal(err)
	}
	now := lend.Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
	held := func(rule leaseRule, grant bucketGrant) *heldBucket {
		rule.KeyPattern = "user:{user_id}"
		b := newHeldBucket("x", &rule, now)
		b.Ask(now, 1)
		b.granted(now, now, &rule, &grant)
		return b
	}
	buckets := []*heldBucket{
		held(leaseRule{RuleID: 12, Scope: "user", Mode: "enforce", RatePerSecond: 1.0 / 3, Burst: 10},
			bucketGrant{Amount: 2 * oneToken, Level: 4.5 * oneToken, Slot: 1, Epoch: 1, Holders: 1}),
		held(leaseRule{RuleID: 13, Scope: "user", Mode: "shadow", RatePerSecond: 10, Burst: 100}, bucketGrant{}),
		held(leaseRule{RuleID: 14, Scope: "ip", Mode: "enforce", RatePerSecond: 0.1, Burst: 50},
			bucketGrant{Level: 0.25 * oneToken, Slot: 1, Epoch: 1, Holders: 1, PauseUS: 500_000}),
	}
	for _, c := range []struct {
		verdict       Verdict
		buckets       []*heldBucket
		policy, limit string
		rest, retry   string
	}{
		{
			Allowed, buckets[:2],
			`"user-12";q=10;w=30`, `"user-12";r=6;t=2`, "6", "",
		},
		{
			Denied, buckets,
			`"user-12";q=10;w=30, "ip-14";q=50;w=500`, `"user-12";r=6;t=2, "ip-14";r=0;t=10`, "0", "12",
		},
	} {
		d := h.decision(c.verdict, decidedBy{&terms{how: howLease, jitter: 20, buckets: c.buckets}, 2}, now)
		header := http.Header{}
		d.SetHeaders(header, time.Now())
		spelled := map[string][]string(header) // as the draft spells them
		policies, limits := spelled[policyField], spelled[limitField]
		got := []string{policies[0], limits[0], header.Get("X-RateLimit-Remaining"), header.Get("Retry-After")}
		if want := []string{c.policy, c.limit, c.rest, c.retry}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.verdict, got, want)
		}
		if len(d.Tiers) != len(c.buckets) || d.Tiers[1].Mode != "shadow" || d.Tiers[1].Window != 0 {
			t.Errorf("%s: the tiers are %+v", c.verdict, d.Tiers)
		}
	}
}

// Without tokens the server is asked, which knows what a shadow rule would have denied.
func TestARuleInShadowDeniesNothing(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	l.amount, l.pauseUS, l.mode = 0, 100_000, "shadow"
	h := handleOf(t, l.client(t), Check{UserID: "42"})
	for deadline := time.Now().Add(handlePatience); ; {
		if got := h.Try(); got != Undecided {
			t.Fatalf("it is %v", got)
		}
		if terms := h.terms.Load(); terms != nil && terms.buckets[0].IsPaused(h.client.leases.clock()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the bucket is never paused")
		}
	}
}

func TestHandlesPassAndBlock(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]Verdict{howPass: Allowed, howBlock: Denied} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l := newLender(t)
			l.how = how
			c := l.client(t)
			h := handleOf(t, c, Check{UserID: "42"})
			until(t, h, want)
			for range 99 {
				until(t, h, want)
			}
			if d, err := h.Check(t.Context()); err != nil || d.Source == FromLease &&
				(d.Allowed != (want == Allowed) || !d.Allowed && d.ViolatedRuleID != 13) {
				t.Errorf("%+v, %v", d, err)
			}
			c.Close()
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.allowed+l.denied[13] < 100 {
				t.Errorf("%d allowed and %v denied were reported", l.allowed, l.denied)
			}
		})
	}
}

func TestARevokedKeyStopsHandles(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	h := handleOf(t, l.client(t), Check{UserID: "42"})
	until(t, h, Allowed)
	l.set(func() { l.status = http.StatusUnauthorized })
	began := time.Now()
	until(t, h, Undecided)
	t.Logf("stopped after %v", time.Since(began))
	if h.terms.Load() != nil {
		t.Error("its tokens ended, but were not taken")
	}
	if d, err := h.Check(t.Context()); err != nil || d.Source != FromFailureMode {
		t.Errorf("then it is the failure mode that decides: %+v, %v", d, err)
	}
	l.set(func() { l.status = 0 })
	until(t, h, Allowed)
}

// refusing puts a server before a lender that refuses leases for the plan gone while isGone is true.
func (l *lender) refusing(t *testing.T, isGone *atomic.Bool) {
	t.Helper()
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		if i := strings.Index(string(text), `"plan":"gone"`); i >= 0 && r.URL.Path == leasesPath && isGone.Load() {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusBadRequest)
			n := strings.Count(string(text[:i]), `"check":`) - 1
			_, _ = io.WriteString(w,
				`{"type":"urn:sluice:problem:invalid-request","errors":[{"pointer":"/checks/`+string(
					rune('0'+n))+`/check/plan","detail":"is not a plan"}]}`)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(text)))
		l.answer(w, r)
	}))
	t.Cleanup(bad.Close)
	l.URL = bad.URL
}

func TestARefusedCheckDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	var isGone atomic.Bool
	isGone.Store(true)
	l.refusing(t, &isGone)
	c := l.client(t)
	good, gone := handleOf(t, c, Check{UserID: "42"}), handleOf(t, c, Check{UserID: "42", Plan: "gone"})
	for range 3 * hotAfter {
		gone.Try()
	}
	until(t, good, Allowed)
	if got := gone.Try(); got != Undecided {
		t.Errorf("the refused handle is %v", got)
	}
}

func TestAHandleThatIsRefusedForGoodIsLeft(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	var isGone atomic.Bool
	l.refusing(t, &isGone)
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42", Plan: "gone"})
	_, passed := until(t, h, Allowed)
	isGone.Store(true)
	if h.Try() == Allowed {
		passed++
	}
	for deadline := time.Now().Add(handlePatience); c.LeaseStats().Handles > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v: the handle keeps its place", c.LeaseStats())
		}
	}
	var reported int64
	l.set(func() { reported = l.allowed })
	if unreported := c.LeaseStats().Unreported; unreported == 0 || reported+unreported != passed {
		t.Errorf("%d decisions were reported and %d were not, of %d", reported, unreported, passed)
	}
}

// The server counts a report whose answer the client does not wait for.
func TestCloseWaitsForTheReportInFlight(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	received, answers := make(chan struct{}), make(chan struct{})
	l.set(func() {
		l.onReport = sync.OnceFunc(func() {
			close(received)
			<-answers
		})
	})
	_, passed := until(t, h, Allowed)
	<-received
	closed := make(chan struct{})
	go func() {
		c.Close()
		close(closed)
	}()
	<-c.life.Done()
	close(answers)
	<-closed
	var reported int64
	l.set(func() { reported = l.allowed })
	if unreported := c.LeaseStats().Unreported; unreported != 0 || reported != passed {
		t.Errorf("%d decisions were reported and %d were not, of %d", reported, unreported, passed)
	}
}

func TestCloseReportsMoreThanOneRequestHolds(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	c := l.client(t)
	attributes := map[string]string{}
	for i := range maxAttributes {
		attributes[strconv.Itoa(i)] = strings.Repeat("\x01", maxAttributeValue) // six bytes each in JSON
	}
	var passed int64
	var handles []*Handle
	for i := range 30 {
		h := handleOf(t, c, Check{UserID: strconv.Itoa(i), Attributes: attributes})
		_, n := until(t, h, Allowed)
		passed += n
		handles = append(handles, h)
	}
	l.set(func() { l.status = http.StatusServiceUnavailable }) // so that decisions accumulate
	for _, h := range handles {
		if h.Try() == Allowed {
			passed++
		}
	}
	l.set(func() { l.status = 0 })
	c.Close()
	var reported int64
	l.set(func() { reported = l.allowed })
	if unreported := c.LeaseStats().Unreported; unreported != 0 || reported != passed {
		t.Errorf("%d decisions were reported and %d were not, of %d", reported, unreported, passed)
	}
}

func TestCloseCountsWhatItCannotReport(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	_, passed := until(t, h, Allowed)
	l.set(func() { l.status = http.StatusServiceUnavailable })
	for range 5 {
		if h.Try() == Allowed {
			passed++
		}
	}
	c.Close()
	var reported int64
	l.set(func() { reported = l.allowed })
	if unreported := c.LeaseStats().Unreported; unreported < 5 || reported+unreported != passed {
		t.Errorf("%d decisions were reported and %d were not, of %d", reported, unreported, passed)
	}
}

func TestAProxysAnswerDoesNotSayThatNothingWasCounted(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	_, passed := until(t, h, Allowed)
	if h.Try() == Allowed {
		passed++
	}
	l.set(func() { l.inFront = "<h1>504 Gateway Timeout</h1>" })
	for deadline := time.Now().Add(handlePatience); c.LeaseStats().Unreported == 0; runtime.Gosched() {
		if h.Try() == Allowed {
			passed++
		}
		if time.Now().After(deadline) {
			t.Fatal("what was reported through the proxy is to be reported again")
		}
	}
	l.set(func() { l.inFront = "" })
	c.Close()
	var reported int64
	l.set(func() { reported = l.allowed })
	if unreported := c.LeaseStats().Unreported; reported > passed || reported+unreported < passed {
		t.Errorf("of %d decisions the server counted %d, and %d are not known of", passed, reported, unreported)
	}
}

func TestCloseTakesAHandleInUseItsTerms(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	l.set(func() { l.how = howPass })
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	until(t, h, Allowed)
	c.Close()
	c.leases.send(context.Background(), &leaseRequest{handles: []*Handle{h}, sent: c.leases.clock()})
	if got := h.Try(); got != Undecided {
		t.Errorf("while the client closes, the handle is %v", got)
	}
}

func TestClocksThatPartTakeTokens(t *testing.T) {
	t.Parallel()
	now := lend.Instant{Mono: int64(time.Hour), Wall: int64(50 * 365 * 24 * time.Hour)}
	rule := &leaseRule{RatePerSecond: 100, Burst: 100}
	grant := &bucketGrant{Amount: 50 * oneToken, Slot: 9, Epoch: 1}
	for name, later := range map[string]lend.Instant{
		"the wall clock jumps ahead": {Mono: now.Mono + int64(time.Millisecond), Wall: now.Wall + int64(time.Second)},
		"the wall clock is set back": {Mono: now.Mono + int64(time.Second), Wall: now.Wall - int64(time.Hour)},
		"its life ends":              now.Plus(lend.OnStoresClock(lend.Life)),
		"the answer came later":      {Mono: now.Mono - 1, Wall: now.Wall},
	} {
		var some lend.Pending
		b := newHeldBucket("12:42", rule, now)
		b.granted(now, now, rule, grant)
		if b.Take(later, oneToken, &some) {
			t.Errorf("%s, and tokens are spent", name)
		}
		if !b.Take(now, oneToken, &some) {
			t.Errorf("%s: nothing could be spent before", name)
		}
	}
}

func TestALostAnswerIsNotReportedAgain(t *testing.T) {
	t.Parallel()
	now := lend.Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
	rule := &leaseRule{RatePerSecond: 100, Burst: 100}
	b := newHeldBucket("12:42", rule, now)
	b.granted(now, now, rule, &bucketGrant{Amount: 5 * oneToken, Slot: 9, Epoch: 1})
	var some lend.Pending
	for b.Take(now, oneToken, &some) {
		some.Spend()
	}
	ask, ok := b.Ask(now, lend.TopUp)
	if want := []lend.Return{{Slot: 9, Spent: 5 * oneToken}}; !ok || !slices.Equal(ask.Returns, want) ||
		ask.Presence != 9 {
		t.Fatalf("asked %+v", ask)
	}
	b.Lost()
	if ask, ok = b.Ask(now.Plus(time.Millisecond), lend.TopUp); !ok || len(ask.Returns) > 0 || ask.Presence != 0 {
		t.Errorf("then asked %+v", ask)
	}
}

func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	for _, amount := range []decimal{0, 1, 999_999, oneToken, 12*oneToken + 340_000, 1e9 * oneToken, 1e9*oneToken - 1} {
		text, err := json.Marshal(amount)
		var back decimal
		if err != nil || json.Unmarshal(text, &back) != nil || back != amount {
			t.Errorf("%d is %s and back %d", amount, text, back)
		}
	}
	for _, wrong := range []string{`-1`, `1e10`, `"1"`, `null`, `[]`} {
		var d decimal
		if err := d.UnmarshalJSON([]byte(wrong)); err == nil {
			t.Errorf("%s is read as %d", wrong, d)
		}
	}
}

// Not parallel, because it counts allocations.
func TestTryAllocatesNothing(t *testing.T) {
	l := newLender(t)
	h := handleOf(t, l.client(t), Check{UserID: "42"})
	for deadline := time.Now().Add(handlePatience); ; { // the background allocates now and then
		until(t, h, Allowed)
		allowed := 0
		allocations := testing.AllocsPerRun(1000, func() {
			if h.Try() == Allowed {
				allowed++
			}
		})
		if allowed > 1000 && allocations == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a try allocates %g times; %d of 1001 were allowed", allocations, allowed)
		}
	}
}

func BenchmarkTry(b *testing.B) {
	l := newLender(b)
	l.amount = 1e9 * oneToken
	h := handleOf(b, l.client(b), Check{UserID: "42"})
	for _, c := range []struct {
		what string
		call func()
	}{
		{"clock", func() { _ = time.Now() }},
		{"try", func() { h.Try() }},
	} {
		b.Run(c.what+"/alone", func(b *testing.B) {
			until(b, h, Allowed)
			b.ReportAllocs()
			for b.Loop() {
				c.call()
			}
		})
		b.Run(c.what+"/contended", func(b *testing.B) {
			until(b, h, Allowed)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.call()
				}
			})
			perCall := float64(b.Elapsed()) / float64(b.N) * float64(runtime.GOMAXPROCS(0))
			b.ReportMetric(perCall, "ns/op") // as each goroutine sees it
		})
	}
}

func TestAClosedClientHasNoGoroutineLeft(t *testing.T) { // not parallel: counts goroutines
	l := newLender(t)
	before := runtime.NumGoroutine()
	c := l.client(t)
	h := handleOf(t, c, Check{UserID: "42"})
	until(t, h, Allowed)
	l.set(func() { l.status = http.StatusServiceUnavailable })
	c.Close() // waits for requests, even if the server is in trouble
	if s := c.LeaseStats(); s.Handles != 0 || s.Buckets != 0 {
		t.Errorf("%+v is held", s)
	}
	l.CloseClientConnections()
	for deadline := time.Now().Add(handlePatience); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
	late := handleOf(t, c, Check{UserID: "43"})
	for range 100 {
		if late.Try() != Undecided {
			t.Fatal("a closed client decides")
		}
	}
	if d, err := late.Check(context.Background()); err != nil || d.Source != FromFailureMode {
		t.Errorf("%+v, %v", d, err)
	}
}
