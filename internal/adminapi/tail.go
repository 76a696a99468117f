package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	tailPoll = time.Second
	// tailWindow is the overlap of polls. Rows count as arrived when their transaction began, so the window must be
	// longer than writing a batch takes.
	tailWindow = 10 * time.Second
	tailLook   = 2000
	tailShow   = 500

	tailHeartbeat = 15 * time.Second
	tailRecheck   = time.Minute
	tailTimeout   = 10 * time.Second
)

const lastEventID = "Last-Event-ID"

func (s *surface) tailViolations(w http.ResponseWriter, r *http.Request) {
	if err := s.tail(w, r); err != nil {
		s.handlerFailed(w, r, err)
	}
}

// tail returns an error only before it has begun to stream.
func (s *surface) tail(w http.ResponseWriter, r *http.Request) error {
	q := requestOf(r.Context())
	filter, err := violationFilter(r.URL.Query(), s.Now())
	if err != nil {
		return err
	}
	since, isLost, err := s.resumeAt(r.Context(), q, r.Header.Get(lastEventID))
	if err != nil {
		return err
	}
	stream := newTail(w, s.Now)
	stream.since = since
	if isLost {
		stream.event("skipped", "", struct{}{})
	}
	q.slot.Release()                       // each poll takes one
	begun := stream.begin(r.Method) == nil // otherwise the caller has left
	if begun && r.Method != http.MethodHead {
		s.follow(r.Context(), stream, q, &filter)
	}
	return nil
}

// resumeAt returns when an event arrived. isLost means that its violation is no longer stored.
func (s *surface) resumeAt(ctx context.Context, q *apiRequest, id string) (since time.Time, isLost bool, err error) {
	if id == "" {
		return time.Time{}, false, nil
	}
	micros, isPosition := strings.CutSuffix(id, "-0")
	if isPosition {
		id = micros + "-1" // a position ends in -0; no event has number 0, so parse it as event 1 of that time
	}
	last, err := violations.ParseID(id)
	if err == nil && isPosition {
		return last.At, false, nil
	}
	if err == nil {
		since, err = s.Violations.ArrivedAt(ctx, q.tenant.ID, last)
	}
	if errors.Is(err, rules.ErrNotFound) {
		return time.Time{}, true, nil
	}
	return since, false, err
}

func (s *surface) follow(ctx context.Context, stream *tail, q *apiRequest, filter *violations.Filter) {
	tick := time.NewTicker(tailPoll)
	defer tick.Stop()
	checked := s.Now()
	for {
		isCurrent := s.Now().Sub(checked) < tailRecheck
		if !isCurrent {
			ended, err := s.stillMayRead(q) //nolint:contextcheck // by the context of the same request
			if ended != "" {
				stream.end(ended)
				return
			}
			if isCurrent = err == nil; isCurrent {
				checked = s.Now()
			}
		}
		// Otherwise the next turn asks again whether the caller may read.
		if isCurrent && s.takeSlot(q) == nil { //nolint:contextcheck // by the context of the same request
			s.showArrived(ctx, stream, q, filter)
			q.slot.Release()
		}
		if !s.pauseStream(ctx, stream, tick.C) {
			return
		}
	}
}

// pauseStream returns false if the stream has ended.
func (s *surface) pauseStream(ctx context.Context, stream *tail, tick <-chan time.Time) bool {
	if stream.flush() != nil {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.Closing:
		stream.end("shutdown")
		return false
	case <-tick:
		return true
	}
}

// stillMayRead returns why the stream must end, or "".
func (s *surface) stillMayRead(q *apiRequest) (ended string, err error) {
	err = asProblem(s.admit(q.again()))
	var problem *httpapi.Problem
	if errors.As(err, &problem) {
		switch problem.Status {
		case http.StatusUnauthorized:
			return "signed_out", nil
		case http.StatusForbidden, http.StatusNotFound:
			return "forbidden", nil
		}
	}
	return "", err
}

func (s *surface) showArrived(ctx context.Context, stream *tail, q *apiRequest, filter *violations.Filter) {
	asked := s.Now()
	arrived, more, position, err := s.arrived(ctx, stream, q, filter, asked)
	if err != nil {
		s.Requests.Log.DebugContext(ctx, "new violations for a stream could not be read", "request_id", q.requestID,
			"error", err)
		return
	}
	stream.since, stream.polledAt = time.Time{}, asked
	seen := make(map[violations.ID]bool, len(arrived))
	fresh := arrived[:0:0]
	for _, violation := range arrived {
		if seen[violation.ID] = true; !stream.seen[violation.ID] {
			fresh = append(fresh, violation)
		}
	}
	// If a poll could not look at all rows, new ones may have pushed out old ones.
	skipped := more && len(fresh) == len(arrived)
	stream.seen = seen
	if len(fresh) > tailShow {
		fresh, skipped = fresh[:tailShow], true
	}
	if skipped {
		stream.event("skipped", "", struct{}{})
	}
	for i := len(fresh) - 1; i >= 0; i-- {
		stream.event("violation", fresh[i].ID.String(), showViolation(&fresh[i]))
	}
	if len(fresh) == 0 && !position.IsZero() {
		stream.position(position)
	}
}

// arrived returns the database's time before the poll if the stream is to send its position.
func (s *surface) arrived(
	ctx context.Context, stream *tail, q *apiRequest, filter *violations.Filter, now time.Time,
) (arrived []violations.Violation, more bool, position time.Time, err error) {
	if stream.polledAt.IsZero() || stream.isQuiet() {
		if position, err = s.Violations.ArrivedAt(ctx, q.tenant.ID, violations.ID{}); err != nil {
			return nil, false, position, err
		}
	}
	within := tailWindow
	if !stream.polledAt.IsZero() {
		within += now.Sub(stream.polledAt)
	}
	arrived, more, err = s.Violations.ViolationsArrived(ctx, q.tenant.ID, filter, stream.since, within, tailLook)
	return arrived, more, position, err
}

type tail struct {
	w    http.ResponseWriter
	to   *http.ResponseController
	now  func() time.Time
	seen map[violations.ID]bool // by the last poll

	since    time.Time // arrival of the last event before a reconnection; zero: none, or it was read
	polledAt time.Time // when the last successful poll began

	events  bytes.Buffer // that are not written yet
	wroteAt time.Time    // zero: nothing was
}

func newTail(w http.ResponseWriter, now func() time.Time) *tail {
	return &tail{w: w, to: http.NewResponseController(w), now: now}
}

func (t *tail) begin(method string) error {
	// The server's deadline for reading is for bodies, and would end the context. A test's recorder has none.
	_ = t.to.SetReadDeadline(time.Time{})
	t.w.Header().Set("Content-Type", "text/event-stream")
	t.w.Header().Set("X-Accel-Buffering", "no") // nginx would hold events back
	t.w.WriteHeader(http.StatusOK)
	if method == http.MethodHead {
		return nil
	}
	return t.to.Flush()
}

func (t *tail) event(name, id string, data any) {
	if id != "" {
		fmt.Fprintf(&t.events, "id: %s\n", id)
	}
	fmt.Fprintf(&t.events, "event: %s\ndata: ", name)
	if err := json.NewEncoder(&t.events).Encode(data); err != nil { // which ends it with a line break
		t.events.WriteByte('\n')
	}
	t.events.WriteByte('\n')
}

func (t *tail) isQuiet() bool { return t.events.Len() == 0 && t.now().Sub(t.wroteAt) >= tailHeartbeat }

// Browsers remember an id without data and show nothing.
func (t *tail) position(at time.Time) {
	fmt.Fprintf(&t.events, ": still here\nid: %d-0\n\n", at.UnixMicro())
}

func (t *tail) end(reason string) {
	t.event("ended", "", map[string]string{"reason": reason})
	_ = t.flush() // a caller that left needs no reason
}

// flush returns an error if the caller has left or does not read.
func (t *tail) flush() error {
	if t.events.Len() == 0 {
		if !t.isQuiet() {
			return nil
		}
		t.events.WriteString(": still here\n\n") // even if the database is away
	}
	_ = t.to.SetWriteDeadline(time.Now().Add(tailTimeout))
	if _, err := t.events.WriteTo(t.w); err != nil {
		return err
	}
	t.wroteAt = t.now()
	return t.to.Flush()
}
