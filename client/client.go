package sluice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// FailureMode decides checks that the server does not decide.
type FailureMode int

// The failure modes.
const (
	Open   FailureMode = iota // the check passes
	Closed                    // it is denied with status 503 and a wait of a second
)

// Config configures a Client, and must have URL and Key.
type Config struct {
	URL string // of the check endpoint, such as http://127.0.0.1:8080
	Key string // an API key with the permission check

	// Timeout is the wait for a check, after which the failure mode decides; 0 is 100 ms. The wait is up to ten times
	// as long while the same check is in flight, and while the process is too busy to read answers. Calls without a
	// failure mode, such as Settle, always wait so long.
	Timeout     time.Duration
	FailureMode FailureMode

	DenialMemory time.Duration // bounds a cached denial; 0 is 5 s, below 0 disables the cache
	Unbatched    bool          // sends each check separately

	// OnDecision is called after each check, for metrics; it must not block.
	OnDecision func(ctx context.Context, o Observation)
	// Logger logs when the server stops and resumes deciding; nil is slog.Default().
	Logger *slog.Logger
	// Transport sends the requests, and must not retry; nil is a transport tuned for checks.
	Transport http.RoundTripper
}

// Observation is the argument of OnDecision.
type Observation struct {
	Check    Check
	Decision Decision
	Err      error         // of Client.Check; then the decision is empty
	Took     time.Duration // the caller's wait
}

const (
	defaultTimeout      = 100 * time.Millisecond
	defaultDenialMemory = 5 * time.Second
	longTimeouts        = 10
)

// Client is a client of one server with one key, for a whole process. Client is safe for concurrent use.
type Client struct {
	config  Config
	base    string
	http    *http.Client
	own     *http.Transport // nil for Config.Transport
	queue   queue
	calm    calm
	memory  memory
	leases  leases
	trouble trouble

	life context.Context // ends with Close; for requests that several callers share
	end  context.CancelFunc
	work sync.WaitGroup
}

// New returns a client, without a request.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.URL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("sluice: Config.URL must be the check endpoint's address, such as http://127.0.0.1:8080")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("sluice: Config.URL must be an address alone; the key goes into Config.Key")
	case config.Key == "":
		return nil, errors.New("sluice: Config.Key is empty; it must be an API key, slk_…")
	case strings.ContainsFunc(config.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("sluice: Config.Key has a space or another character that no key has")
	case config.Timeout < 0:
		return nil, fmt.Errorf("sluice: Config.Timeout is %v; it must be above 0, or 0 for the default", config.Timeout)
	case config.FailureMode != Open && config.FailureMode != Closed:
		return nil, fmt.Errorf("sluice: Config.FailureMode is %d; it must be Open or Closed", config.FailureMode)
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.DenialMemory == 0 {
		config.DenialMemory = defaultDenialMemory
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	c := &Client{config: config, base: strings.TrimRight(config.URL, "/")}
	c.life, c.end = context.WithCancel(context.Background())
	c.memory = memory{longest: config.DenialMemory, now: time.Now}
	c.trouble.now = time.Now
	c.queue.client = c
	c.queue.breaker = breaker{timeout: config.Timeout, now: time.Now}
	c.queue.batches = c.queue.breaker
	c.leases.init(c)
	transport := config.Transport
	if transport == nil {
		c.own = ownTransport()
		transport = c.own
	}
	c.http = &http.Client{
		Transport: transport,
		// A redirect must not carry the key elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Close ends checks in flight, reports handles' decisions, returns leased tokens and closes connections, within about a
// second. The failure mode decides later checks.
func (c *Client) Close() {
	c.queue.mu.Lock()
	c.end()
	c.queue.mu.Unlock()
	c.work.Wait()
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Check asks whether a request may pass. The error is an *Error of KindRequest for an invalid check, such as of an
// unknown plan, or the context's. Without one there is a decision, possibly by the failure mode.
//
// If ctx ends during the request, the server may still count the check, and a concurrency slot stays taken until its
// max_hold. Pass context.WithoutCancel(ctx) to avoid that, as the middleware does: Config.Timeout bounds the wait.
func (c *Client) Check(ctx context.Context, check Check) (Decision, error) {
	return c.check(ctx, check, -1)
}

// Reserve is Check with an estimated cost. Pass the Reservation of an allowed decision to Settle within hold; 0 is the
// server's default of ten minutes.
func (c *Client) Reserve(ctx context.Context, check Check, hold time.Duration) (Decision, error) {
	return c.check(ctx, check, max(0, hold))
}

func (c *Client) check(ctx context.Context, check Check, hold time.Duration) (Decision, error) {
	if c.config.OnDecision == nil {
		return c.decide(ctx, &check, hold)
	}
	began := time.Now()
	decision, err := c.decide(ctx, &check, hold)
	c.config.OnDecision(ctx, Observation{Check: check, Decision: decision, Err: err, Took: time.Since(began)})
	return decision, err
}

func (c *Client) decide(ctx context.Context, check *Check, hold time.Duration) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("sluice: %w", err)
	}
	q, err := check.ask(hold)
	if err != nil {
		return Decision{}, err
	}
	if decision, ok := c.memory.recall(&q); ok {
		return decision, nil
	}
	decision, failed := c.queue.ask(ctx, &q)
	if failed == nil {
		c.trouble.over(ctx, c.config.Logger)
		return decision, nil
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("sluice: %w", err)
	}
	if decision, ok := c.memory.recall(&q); ok { // learned while this check waited
		return decision, nil
	}
	return c.fallBack(ctx, failed)
}

// CheckBatch decides up to 1000 checks in order, in one request, without the cache of denials. If a check is invalid,
// the error names it, and nothing is taken.
func (c *Client) CheckBatch(ctx context.Context, checks []Check) ([]Decision, error) {
	if len(checks) == 0 {
		return nil, nil
	}
	questions := make([]*question, len(checks))
	for i := range checks {
		q, err := checks[i].ask(-1)
		var failed *Error
		if errors.As(err, &failed) {
			for j := range failed.Fields {
				failed.Fields[j].Pointer = fmt.Sprintf("/checks/%d%s", i, failed.Fields[j].Pointer)
			}
		}
		if err != nil {
			return nil, err
		}
		questions[i] = &q
	}
	began := time.Now()
	decisions := make([]Decision, len(checks))
	failed := c.queue.askTogether(ctx, questions, decisions)
	if failed != nil {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("sluice: %w", err)
		}
		decision, err := c.fallBack(ctx, failed)
		if err != nil {
			return nil, err
		}
		for i := range decisions {
			decisions[i] = decision
		}
	} else {
		c.trouble.over(ctx, c.config.Logger)
	}
	if c.config.OnDecision != nil {
		for i, check := range checks {
			c.config.OnDecision(ctx, Observation{Check: check, Decision: decisions[i], Took: time.Since(began)})
		}
	}
	return decisions, nil
}

func (c *Client) fallBack(ctx context.Context, failed *Error) (Decision, error) {
	if failed.Kind == KindRequest {
		return Decision{}, failed
	}
	c.trouble.begins(ctx, c.config.Logger, failed, c.config.FailureMode)
	if c.config.FailureMode == Closed {
		return Decision{
			Status: http.StatusServiceUnavailable, Reason: "sluice_unavailable", RetryAfter: time.Second,
			Source: FromFailureMode, Err: failed,
		}, nil
	}
	return Decision{Allowed: true, Status: http.StatusOK, Source: FromFailureMode, Err: failed}, nil
}

// quietAfter without a failure the log says that the server decides again, so that occasional failures are one line.
const quietAfter = time.Second

type trouble struct {
	now   func() time.Time
	isOn  atomic.Bool // count is above 0; read without the lock
	mu    sync.Mutex
	count int
	since time.Time
	last  time.Time // the last failure
}

func (t *trouble) begins(ctx context.Context, log *slog.Logger, failed *Error, mode FailureMode) {
	now := t.now()
	t.mu.Lock()
	t.count++
	t.isOn.Store(true)
	first := t.count == 1
	if first {
		t.since = now
	}
	t.last = now
	t.mu.Unlock()
	if first {
		log.WarnContext(ctx, "Sluice does not decide; checks are decided by the failure mode", "failure_mode",
			mode.String(), "error", failed)
	}
}

func (t *trouble) over(ctx context.Context, log *slog.Logger) {
	if !t.isOn.Load() {
		return
	}
	now := t.now()
	t.mu.Lock()
	if now.Sub(t.last) < quietAfter {
		t.mu.Unlock()
		return
	}
	count, since := t.count, t.since
	t.count = 0
	t.isOn.Store(false)
	t.mu.Unlock()
	if count > 0 {
		log.InfoContext(ctx, "Sluice decides again", "checks", count, "after", now.Sub(since))
	}
}

func (m FailureMode) String() string {
	if m == Closed {
		return "closed"
	}
	return "open"
}
