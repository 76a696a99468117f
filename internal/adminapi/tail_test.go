package adminapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type event struct{ name, id, data, comment string }

type watched struct {
	t      testing.TB
	answer *http.Response
	events chan event // closed at the end
}

type streaming struct {
	*world
	server  *httptest.Server
	ahead   atomic.Int64 // of the clock, in nanoseconds
	closing chan struct{}
}

// cutAfter is the server's deadline for reading and for writing, which must not end a stream. A busy machine needs
// a part of it until the stream has begun.
const cutAfter = 3 * time.Second

func newStreaming(t *testing.T) *streaming {
	t.Helper()
	s := &streaming{closing: make(chan struct{})}
	s.world = newWorld(t, func(c *adminapi.Config) {
		c.Closing = s.closing
		c.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	})
	s.server = httptest.NewUnstartedServer(s.handler)
	s.server.Config = httpapi.NewServer(s.handler, slog.New(slog.DiscardHandler))
	s.server.Config.ReadTimeout, s.server.Config.WriteTimeout = cutAfter, cutAfter
	s.server.Start()
	t.Cleanup(s.server.Close)
	return s
}

func (s *streaming) watch(by caller, query string, header ...string) *watched {
	s.t.Helper()
	answer := s.open(s.server.URL, by, ours+"/tail"+query, header...)
	w := &watched{t: s.t, answer: answer, events: make(chan event, 1000)}
	s.t.Cleanup(func() { _ = answer.Body.Close() })
	go func() {
		defer close(w.events)
		var e event
		for scanner := bufio.NewScanner(answer.Body); scanner.Scan(); {
			field, value, _ := strings.Cut(scanner.Text(), ": ")
			switch field {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				if value != "" {
					e.comment = value
					continue
				}
				w.events <- e // an empty line ends it
				e = event{}
			}
		}
	}()
	return w
}

func (w *watched) next() event {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e, ok := <-w.events:
			if !ok {
				w.t.Fatal("the stream ended")
			}
			if e.name != "" {
				return e
			}
		case <-deadline:
			w.t.Fatal("nothing came")
		}
	}
}

func (w *watched) wantEnd(reason string) {
	w.t.Helper()
	if e := w.next(); e.name != "ended" || e.data != `{"reason":"`+reason+`"}` {
		w.t.Errorf("the stream says %+v, want that it ended because of %s", e, reason)
	}
	select {
	case e, ok := <-w.events:
		if ok {
			w.t.Errorf("after its end the stream says %+v", e)
		}
	case <-time.After(patience):
		w.t.Error("the stream goes on after its end")
	}
}

func TestATailShowsEachViolationOnceAndNothingOfOthers(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	at := lately().Add(-24 * time.Hour) // what counts is when they arrive
	before := s.violate(denied(s.acme, at),
		denied(s.acme, at.Add(time.Second), func(v *violations.Violation) { v.UserID = "43" }))
	all, one := s.watch(s.person(s.acme, auth.Viewer), ""), s.watch(s.person(s.acme, auth.Viewer), "?user_id=43")
	if got := all.answer.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the stream is of the type %q", got)
	}
	seen := map[string]bool{}
	want := func(stream *watched, of violations.Violation) {
		t.Helper()
		e := stream.next()
		shown := struct {
			ViolationID string `json:"violation_id"`
		}{}
		if err := json.Unmarshal([]byte(e.data), &shown); err != nil || e.name != "violation" ||
			e.id != shown.ViolationID {
			t.Errorf("%+v is no violation: %v", e, err)
		}
		if e.id != of.ID.String() {
			t.Errorf("%s came, want %s", e.id, of.ID)
		}
		if stream == all && seen[e.id] {
			t.Errorf("%s came twice", e.id)
		}
		seen[e.id] = true
	}
	want(all, before[0])
	want(all, before[1])
	want(one, before[1])
	// several polls, the first rows being still in their window
	for n, began := 0, time.Now(); n < 3 || time.Since(began) <= cutAfter; n++ {
		s.violate(denied(s.other, at.Add(time.Duration(n)*time.Minute)))
		after := s.violate(denied(s.acme, at.Add(time.Duration(n)*time.Minute), func(v *violations.Violation) {
			v.UserID, v.Subject = "43", "43"
		}))
		want(all, after[0])
		want(one, after[0])
	}
}

func TestATailThatNobodyMayReadAnyMoreEndsWithinAMinute(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	leaves, removed, staying := s.person(s.acme, auth.Viewer), s.person(s.acme, auth.Viewer),
		s.person(s.acme, auth.Viewer)
	signedOut, forbidden, goesOn := s.watch(leaves, ""), s.watch(removed, ""), s.watch(staying, "")
	if err := s.store.EndSession(t.Context(), leaves.account.ID, leaves.sessionID); err != nil {
		t.Fatal(err)
	}
	if err := s.store.RemoveMember(t.Context(), rules.Actor{Kind: rules.ActorSystem}, s.acme.ID, removed.account.ID,
		rules.AnyVersion, false); err != nil {
		t.Fatal(err)
	}
	s.ahead.Store(int64(time.Minute))
	signedOut.wantEnd("signed_out")
	forbidden.wantEnd("forbidden")
	shown := s.violate(denied(s.acme, lately()))
	if e := goesOn.next(); e.id != shown[0].ID.String() {
		t.Errorf("who may read on sees %+v", e)
	}
	close(s.closing)
	goesOn.wantEnd("shutdown")
}

func TestATailThatIsResumedShowsWhatArrivedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	by := s.person(s.acme, auth.Viewer)
	quiet := s.watch(by, "")
	position := <-quiet.events // before there is any violation
	if position.id == "" || position.name != "" {
		t.Fatalf("a stream begins with %+v, want an id and no event", position)
	}
	_ = quiet.answer.Body.Close()

	at := lately()
	seen := s.violate(denied(s.acme, at))[0]
	missed := s.violate(denied(s.acme, at.Add(time.Second)), denied(s.other, at))[0]
	s.exec("UPDATE rate_limit_violation SET recorded_at = recorded_at - interval '2 minutes' WHERE requested_at = $1",
		seen.ID.At)
	s.exec("UPDATE rate_limit_violation SET recorded_at = recorded_at - interval '1 minute' WHERE requested_at = $1",
		missed.ID.At)
	early := fmt.Sprintf("%d-0", time.Now().Add(-90*time.Second).UnixMicro())
	for id, want := range map[string][]string{
		seen.ID.String(): {"violation " + seen.ID.String(), "violation " + missed.ID.String()}, // it may come again
		early:            {"violation " + missed.ID.String()},
		violations.ID{At: at.Add(-time.Hour), Number: 7}.String(): {"skipped "},
		"no id at all": {"skipped "},
	} {
		stream := s.watch(by, "", "Last-Event-ID", id)
		for _, want := range want {
			if e := stream.next(); e.name+" "+e.id != want {
				t.Errorf("after %s comes %+v, want %s", id, e, want)
			}
		}
		_ = stream.answer.Body.Close()
	}
}

func TestAnOpenTailDoesNotKeepASessionAlive(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	by := s.person(s.acme, auth.Viewer)
	stream := s.watch(by, "")
	s.exec("UPDATE session SET last_seen_at = last_seen_at - interval '1 hour'")
	seenAt := func() time.Time {
		return must(s.gate.Sessions(t.Context(), by.account.ID))(t)[0].LastSeenAt
	}
	before := seenAt()
	s.ahead.Store(int64(time.Minute))
	for n := range 2 { // of two polls the second has looked at the session
		want := s.violate(denied(s.acme, lately().Add(time.Duration(n)*time.Second)))[0]
		if e := stream.next(); e.id != want.ID.String() {
			t.Errorf("%+v came, want %s", e, want.ID)
		}
	}
	s.watch(by, "", "Last-Event-ID", "1-0").next() // a browser does so by itself
	if after := seenAt(); !after.Equal(before) {
		t.Errorf("a session that only has a stream was seen at %s and then at %s", before, after)
	}
}

func TestAQuietTailShowsThatItLives(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	stream := s.watch(s.person(s.acme, auth.Viewer), "")
	for n, began := 0, time.Now(); n < 3 || time.Since(began) <= cutAfter; n++ {
		select {
		case e := <-stream.events:
			if e.comment == "" {
				t.Errorf("%+v came, want a comment", e)
			}
		case <-time.After(patience):
			t.Fatalf("only %d comments came", n)
		}
		s.ahead.Add(int64(15 * time.Second))
	}
}

func TestAnAccountHasFourTailsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	by := s.person(s.acme, auth.Viewer)
	var streams []*watched
	for range 4 {
		streams = append(streams, s.watch(by, ""))
	}
	if got := s.send(by, "GET", ours+"/tail", nil); got.status != http.StatusTooManyRequests {
		t.Errorf("the fifth is answered %d, want 429", got.status)
	}
	if got := s.send(s.person(s.acme, auth.Viewer), "GET", ours+"/tail", nil); got.status != http.StatusOK {
		t.Errorf("somebody else's first is answered %d", got.status)
	}
	_ = streams[0].answer.Body.Close()
	for deadline := time.Now().Add(patience); ; {
		if got := s.send(by, "GET", ours+"/tail", nil); got.status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a stream that was closed still counts")
		}
	}
}

func TestATenantHasTwentyTailsAtOnce(t *testing.T) {
	t.Parallel()
	s := newStreaming(t)
	for range 5 {
		by := s.person(s.acme, auth.Viewer)
		for range 4 {
			s.watch(by, "")
		}
	}
	colleague := s.person(s.acme, auth.Viewer)
	got := s.send(colleague, "GET", ours+"/tail", nil)
	if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, "members of this tenant") {
		t.Errorf("the tenant's 21st is answered %d: %s", got.status, got.body)
	}
	if got := s.send(s.person(s.other, auth.Viewer), "GET", "/api/v1/tenants/other/violations/tail",
		nil); got.status != http.StatusOK {
		t.Errorf("a neighbour's first is answered %d: %s", got.status, got.body)
	}
	if got := s.send(colleague, "GET", "/api/v1/tenants/acme/rules", nil); got.status != http.StatusOK {
		t.Errorf("a member cannot read rules beside the tails: answered %d: %s", got.status, got.body)
	}
}
