package sluice

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const testKey = "slk_test_topsecret0123456789"

// All clients share the vectors of clients/testdata/vectors.json.
type vectorCase struct {
	Name   string
	Config struct {
		FailureMode    string `json:"failure_mode"`
		DenialMemoryMS int    `json:"denial_memory_ms"`
	}
	Gone  bool
	Steps []vectorStep
}

type vectorStep struct {
	AdvanceMS   int `json:"advance_ms"`
	Call        string
	Check       json.RawMessage
	Checks      []json.RawMessage
	HoldMS      int    `json:"hold_ms"`
	UserID      string `json:"user_id"`
	Plan        string
	Reservation string
	Cost        float64
	Costs       map[string]float64
	Answer      *scripted
	Sent        struct {
		Method, Path string
		Body         any
	}
	Decision   map[string]any
	Decisions  []map[string]any
	Error      map[string]any
	Settlement map[string]any
	Usage      any
}

type scripted struct {
	Fault   string
	Status  int
	Type    string
	Headers map[string]string
	Body    any
	Text    string
}

type received struct {
	method, path, body string
	header             http.Header
}

type scriptedServer struct {
	*httptest.Server
	mu       sync.Mutex
	next     []scripted
	requests []received
}

func newScriptedServer(t *testing.T) *scriptedServer {
	t.Helper()
	s := &scriptedServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.Close)
	return s
}

func (s *scriptedServer) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the client may break off
	s.mu.Lock()
	s.requests = append(s.requests, received{r.Method, r.URL.RequestURI(), string(body), r.Header})
	answer := scripted{Status: http.StatusTeapot, Text: "nothing was expected"}
	if len(s.next) > 0 {
		answer, s.next = s.next[0], s.next[1:]
	}
	s.mu.Unlock()
	switch answer.Fault {
	case "slow":
		<-r.Context().Done()
		return
	case "trickle":
		w.Header().Set("Content-Type", "application/json")
		for next := time.NewTicker(20 * time.Millisecond); r.Context().Err() == nil; <-next.C {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
		}
		return
	case "trickle_header":
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer connection.Close()
		_, err = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Long: ")
		for next := time.NewTicker(20 * time.Millisecond); err == nil; <-next.C { // until the client is gone
			_, err = io.WriteString(connection, "x")
		}
		return
	case "reset", "truncated":
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		if answer.Fault == "truncated" {
			_, _ = io.WriteString(connection,
				"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"allowed\":")
		}
		_ = connection.Close()
		return
	}
	for name, value := range answer.Headers {
		w.Header().Set(name, value)
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.Type != "" {
		w.Header().Set("Content-Type", answer.Type)
	}
	text := []byte(answer.Text)
	if answer.Body != nil {
		text, _ = json.Marshal(answer.Body)
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(text) // the client may be gone
}

func (s *scriptedServer) take() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.requests
	s.requests = nil
	return got
}

func TestVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../clients/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct{ Cases []vectorCase }
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors.Cases) < 40 {
		t.Fatalf("only %d cases were read", len(vectors.Cases))
	}
	for _, c := range vectors.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			replay(t, &c)
		})
	}
}

func replay(t *testing.T, c *vectorCase) {
	t.Helper()
	server := newScriptedServer(t)
	var log bytes.Buffer
	config := Config{
		URL: server.URL, Key: testKey, DenialMemory: time.Duration(c.Config.DenialMemoryMS) * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		// Faults that are not timeouts must not become one on a busy machine.
		Timeout: time.Minute,
	}
	for _, step := range c.Steps {
		if step.Answer != nil && slices.Contains([]string{"slow", "trickle", "trickle_header"}, step.Answer.Fault) {
			config.Timeout = 200 * time.Millisecond
		}
	}
	if c.Config.FailureMode == "closed" {
		config.FailureMode = Closed
	}
	if c.Gone {
		config.URL = "http://" + closedPort(t)
	}
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	now := time.Now()
	client.memory.now = func() time.Time { return now }
	for i := range c.Steps {
		step := &c.Steps[i]
		if step.AdvanceMS > 0 {
			now = now.Add(time.Duration(step.AdvanceMS) * time.Millisecond)
			continue
		}
		server.mu.Lock()
		server.next = nil
		if step.Answer != nil {
			server.next = []scripted{*step.Answer}
		}
		server.mu.Unlock()
		step.run(t, client)
		step.wantSent(t, server.take())
	}
	if strings.Contains(log.String(), "topsecret") {
		t.Errorf("the log names the key:\n%s", log.String())
	}
}

func (s *vectorStep) run(t *testing.T, client *Client) {
	t.Helper()
	var err error
	switch s.Call {
	case "check", "reserve":
		var d Decision
		if s.Call == "check" {
			d, err = client.Check(t.Context(), readCheck(t, s.Check))
		} else {
			d, err = client.Reserve(t.Context(), readCheck(t, s.Check), time.Duration(s.HoldMS)*time.Millisecond)
		}
		if err == nil {
			wantMembers(t, "the decision", plain(&d), s.Decision)
		}
	case "batch":
		checks := make([]Check, len(s.Checks))
		for i := range checks {
			checks[i] = readCheck(t, s.Checks[i])
		}
		var decisions []Decision
		if decisions, err = client.CheckBatch(t.Context(), checks); err == nil {
			if len(decisions) != len(s.Decisions) {
				t.Fatalf("%d decisions, want %d", len(decisions), len(s.Decisions))
			}
			for i := range decisions {
				wantMembers(t, "decision "+strconv.Itoa(i), plain(&decisions[i]), s.Decisions[i])
			}
		}
	case "settle", "cancel", "release", "extend":
		var got Settlement
		switch s.Call {
		case "settle":
			if s.Costs == nil {
				got, err = client.Settle(t.Context(), s.Reservation, s.Cost)
			} else {
				got, err = client.SettleCosts(t.Context(), s.Reservation, s.Costs)
			}
		case "cancel":
			got, err = client.Cancel(t.Context(), s.Reservation)
		case "release":
			got, err = client.Release(t.Context(), s.Reservation)
		case "extend":
			if s.Costs == nil {
				got, err = client.Extend(t.Context(), s.Reservation)
			} else {
				got, err = client.ExtendCosts(t.Context(), s.Reservation, s.Costs)
			}
		}
		if err == nil {
			costs := map[string]any{}
			for meter, cost := range got.Costs {
				costs[meter] = cost
			}
			wantMembers(t, "the settlement", map[string]any{
				"settled": got.Settled, "charged": got.Charged, "costs": costs, "extended": got.Extended,
				"denied": got.Denied,
			}, s.Settlement)
		}
	case "usage":
		var text json.RawMessage
		if text, err = client.Usage(t.Context(), s.UserID, s.Plan); err == nil {
			var got any
			if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, s.Usage) {
				t.Errorf("usage is %s, %v, want %v", text, err, s.Usage)
			}
		}
	default:
		t.Fatalf("the vectors have an unknown call, %q", s.Call)
	}
	s.wantError(t, err)
}

func (s *vectorStep) wantError(t *testing.T, err error) {
	t.Helper()
	var failed *Error
	switch {
	case err == nil && s.Error == nil:
		return
	case err == nil || s.Error == nil || !errors.As(err, &failed):
		t.Fatalf("the error is %v, want %v", err, s.Error)
	}
	fields := []any{}
	for _, f := range failed.Fields {
		fields = append(fields, map[string]any{"pointer": f.Pointer, "detail": f.Detail})
	}
	wantMembers(t, "the error", map[string]any{
		"kind": string(failed.Kind), "status": float64(failed.Status), "type": failed.Type,
		"request_id": failed.RequestID, "fields": fields,
	}, s.Error)
	if strings.Contains(err.Error(), "topsecret") {
		t.Errorf("the error names the key: %v", err)
	}
}

func (s *vectorStep) wantSent(t *testing.T, got []received) {
	t.Helper()
	if s.Answer == nil {
		if len(got) > 0 {
			t.Errorf("%d requests were sent, want none", len(got))
		}
		return
	}
	if len(got) != 1 {
		t.Fatalf("%d requests were sent, want 1", len(got))
	}
	if got[0].method != s.Sent.Method || got[0].path != s.Sent.Path {
		t.Errorf("%s %s was asked, want %s %s", got[0].method, got[0].path, s.Sent.Method, s.Sent.Path)
	}
	header := got[0].header
	if header.Get("Authorization") != "Bearer "+testKey ||
		!strings.HasPrefix(header.Get("User-Agent"), "sluice-go/"+Version) {
		t.Errorf("the headers are %v", header)
	}
	var body any
	if got[0].body != "" {
		if err := json.Unmarshal([]byte(got[0].body), &body); err != nil ||
			header.Get("Content-Type") != "application/json" {
			t.Fatalf("%v: body %q of type %q", err, got[0].body, header.Get("Content-Type"))
		}
	}
	if !reflect.DeepEqual(body, s.Sent.Body) {
		t.Errorf("the body is %s, want %v", got[0].body, s.Sent.Body)
	}
}

func readCheck(t *testing.T, text json.RawMessage) Check {
	t.Helper()
	var check struct {
		UserID     string `json:"user_id"`
		Plan       string
		Endpoint   string
		Method     string
		IP         string
		Attributes map[string]string
		Cost       *float64
		Costs      map[string]float64
	}
	if err := json.Unmarshal(text, &check); err != nil {
		t.Fatal(err)
	}
	c := Check{
		UserID: check.UserID, Plan: check.Plan, Endpoint: check.Endpoint, Method: check.Method, IP: check.IP,
		Attributes: check.Attributes, Costs: check.Costs,
	}
	if check.Cost != nil {
		c.Cost, c.Look = *check.Cost, *check.Cost == 0
	}
	return c
}

func plain(d *Decision) map[string]any {
	ms := func(duration time.Duration) float64 { return float64(duration) / float64(time.Millisecond) }
	kind := ""
	var failed *Error
	if errors.As(d.Err, &failed) {
		kind = string(failed.Kind)
	}
	tiers := []any{}
	for _, t := range d.Tiers {
		tiers = append(tiers, map[string]any{
			"rule_id": float64(t.RuleID), "name": t.Name, "scope": t.Scope, "key_pattern": t.KeyPattern, "mode": t.Mode,
			"allowed": t.Allowed,
			"limit":   float64(t.Limit), "remaining": t.Remaining, "retry_after_ms": ms(t.RetryAfter),
			"reset_after_ms": ms(t.ResetAfter),
		})
	}
	return map[string]any{
		"allowed": d.Allowed, "status": float64(d.Status), "reason": d.Reason, "plan": d.Plan,
		"retry_after_ms": ms(d.RetryAfter),
		"delay_ms":       ms(d.Delay), "limit": float64(d.Limit), "remaining": float64(d.Remaining),
		"reset_after_ms": ms(d.ResetAfter),
		"violated_tier":  d.ViolatedTier, "violated_rule": d.ViolatedRule,
		"violated_rule_id": float64(d.ViolatedRuleID),
		"reservation":      d.Reservation, "degraded": d.Degraded, "source": string(d.Source), "error_kind": kind,
		"tiers": tiers,
	}
}

// wantMembers compares the members that the vectors name. null means Go's zero value.
func wantMembers(t *testing.T, what string, got, want map[string]any) {
	t.Helper()
	for name, value := range want {
		have, known := got[name]
		switch {
		case !known:
			t.Fatalf("the vectors name %s of %s, which nobody compares", name, what)
		case value == nil && reflect.ValueOf(have).IsZero():
		case !reflect.DeepEqual(have, value):
			t.Errorf("%s of %s is %v, want %v", name, what, have, value)
		}
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
