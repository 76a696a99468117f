package adminapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

// gates are what each request passes before its handler, in this order. The first error is the answer.
var gates = []func(*surface, *apiRequest) error{ //nolint:gochecknoglobals // a constant
	(*surface).checkOrigin,        // 403 for a browser's page of another site
	(*surface).checkNetworkBucket, // 429 for a network that sent too many invalid credentials, before any lookup
	// 401 without a valid credential, 404 for a tenant without a role, 403 for a role, key or session that does not
	// suffice. Beyond the rate limit all get 429, so that guessing costs as much as asking.
	(*surface).admitAndCharge,
	(*surface).openTransfer, // 429 for too many open files and streams
	(*surface).checkAddress, // 400 for the path and the query
	// Receiving may take minutes, so it holds no slot. An uploader is authenticated and authorized again afterwards.
	(*surface).receiveBody,
	(*surface).takeSlot,    // 429 or 503 if no slot becomes free in time; parsing the body takes a processor
	(*surface).checkUnread, // 429 or 503 for too many bytes of unread answers
	(*surface).readIdempotencyKey,
	(*surface).checkBody,       // 400 with a pointer for each mistake
	(*surface).checkDryRun,     // 403 for a key that may read and asks for more than a dry run
	(*surface).checkFreshProof, // 403 if the body asks for something dangerous and the session is old
	(*surface).readIfMatch,     // 400 for an If-Match that is not one ETag
}

func (s *surface) guard(rt route, o *operation) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &apiRequest{
			w: w, r: r, route: rt, operation: o, requestID: httpapi.RequestID(w), began: time.Now(),
			isUnattended: r.Header.Get(lastEventID) != "",
		}
		defer q.release()
		if err := s.pass(q); err != nil {
			s.noteRefusal(q, rt, err)
			s.pauseRefusal(q.r.Context(), q, err)
			s.handlerFailed(w, r, err)
			return nil
		}
		if o.isFile {
			s.note(q, auth.AccessExported, rt.path)
		}
		q.r = q.r.WithContext(q.context())
		switch {
		case o.isFile, o.isStream, rt.least == anyone: // it does not hold a slot while it writes
			rt.handler(w, q.r)
		case q.idempotencyKey == "":
			s.send(q, hold(w, q))
		default:
			if err := s.handleIdempotent(w, q); err != nil {
				s.handlerFailed(w, q.r, err)
			}
		}
		return nil
	}
}

func (s *surface) pass(q *apiRequest) error {
	for _, gate := range gates {
		if err := gate(s, q); err != nil {
			return err
		}
	}
	return nil
}

func (q *apiRequest) context() context.Context {
	return shares.With(context.WithValue(q.r.Context(), apiRequestKey{}, q), &q.slot)
}

func (s *surface) checkOrigin(q *apiRequest) error {
	if s.origins.Check(q.r) != nil {
		return httpapi.Forbidden.Problem("A browser sent this from a page of another site; open Sluice itself.")
	}
	return nil
}

func (s *surface) admitAndCharge(q *apiRequest) error {
	err := s.admit(q)
	if errors.Is(err, rules.ErrAway) || errors.Is(err, context.DeadlineExceeded) || sharesProblem(err) != nil {
		return err // the credential was not checked, so its network does not pay
	}
	if denied := s.charge(q); denied != nil {
		return denied
	}
	return err
}

func (s *surface) admit(q *apiRequest) error {
	if q.route.least == anyone {
		return nil
	}
	leave, err := s.takeLookup(q)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.identify(q); err != nil {
		return err
	}
	if q.key != nil && q.operation.permission == "" {
		return httpapi.Forbidden.Problem("This is for people: sign in instead of sending an API key.")
	}
	if strings.Contains(q.route.path, "{tenant}") {
		if err := s.enter(q); err != nil {
			return err
		}
	}
	if err := s.requireFactor(q, q.route); err != nil {
		return err
	}
	reads := q.route.method == http.MethodGet || q.route.least == aViewer || q.operation.hasDryRun
	return q.judge(q.route.least, q.operation.permission, reads)
}

func (q *apiRequest) again() *apiRequest {
	return &apiRequest{
		w: q.w, r: q.r, route: q.route, operation: q.operation, requestID: q.requestID,
		isUnattended: true,
	}
}

func (*surface) checkAddress(q *apiRequest) error { return q.operation.checkAddress(q.r) }

func (s *surface) receiveBody(q *apiRequest) (err error) {
	q.body, err = q.operation.read(q.w, q.r)
	if err == nil && q.operation.isUpload() {
		err = s.admit(q.again())
	}
	return err
}

func (*surface) checkBody(q *apiRequest) (err error) {
	q.value, err = q.operation.decodeBody(q.r, q.body)
	return err
}

// checkDryRun judges whom admit let in for a dry run.
func (*surface) checkDryRun(q *apiRequest) error {
	if !q.operation.hasDryRun || q.isDryRun() {
		return nil
	}
	return q.judge(q.route.least, q.operation.permission, false)
}

func (q *apiRequest) isDryRun() bool {
	body, _ := q.value.(map[string]any)
	return body["dry_run"] == true || slices.Equal(q.r.URL.Query()["dry_run"], []string{"true"})
}

func (s *surface) checkFreshProof(q *apiRequest) error {
	if q.operation.wantsFreshProof(q.value) {
		return s.requireFreshProof(q)
	}
	return nil
}

// readIfMatch leaves a missing or repeated If-Match to the generated code.
func (*surface) readIfMatch(q *apiRequest) (err error) {
	if sent := q.r.Header.Values("If-Match"); q.operation.needsMatch && len(sent) == 1 {
		q.ifMatch, err = expected(sent[0])
	}
	return err
}
