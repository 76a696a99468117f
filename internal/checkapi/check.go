package checkapi

import (
	"bytes"
	"net/http"
	"strconv"
	"sync"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// exchange is the memory of one request. Nothing of it may be used once it is released; strings
// read from it are copies and may.
type exchange struct {
	body      bytes.Buffer
	reader    httpapi.Reader
	checks    []enforce.Check
	decisions []enforce.Decision
	answer    []byte
	headers   headerText
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// release gives the memory back, except that of large batches, which single checks would keep
// alive for ever.
func (x *exchange) release() {
	if x.body.Cap() > maxBody || cap(x.answer) > maxBody || cap(x.checks) > 64 {
		return
	}
	clear(x.checks)
	for i := range x.decisions {
		x.decisions[i].Reset()
	}
	x.checks, x.decisions = x.checks[:0], x.decisions[:0]
	exchanges.Put(x)
}

// check handles POST /v1/check.
func (s *surface) check(w http.ResponseWriter, r *http.Request) error {
	tenant, err := s.authorize(w, r, rules.PermissionCheck)
	if err != nil {
		return err
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	if err := x.readCheck(w, r); err != nil {
		return err
	}
	if err := choosePlans(tenant, x.checks, onePointer); err != nil {
		return err
	}
	x.decide(s.Limiter, r, tenant)
	d := &x.decisions[0]
	x.answer = appendAnswer(x.answer[:0], d)
	x.headers.reset()
	x.headers.addRateLimit(d, s.Now(), jitter(&tenant.Tenant, &x.checks[0].Request))
	x.write(w, status(d))
	return nil
}

// checkBatch handles POST /v1/check/batch.
func (s *surface) checkBatch(w http.ResponseWriter, r *http.Request) error {
	tenant, err := s.authorize(w, r, rules.PermissionCheck)
	if err != nil {
		return err
	}
	x := exchanges.Get().(*exchange)
	defer x.release()
	if err := httpapi.ReadBody(w, r, maxBatchBody, &x.body); err != nil {
		return err
	}
	x.reader.Reset(&x.body)
	x.checks = decodeBatch(&x.reader, x.checks[:0])
	if err := x.reader.Close(); err != nil {
		return err
	}
	if err := choosePlans(tenant, x.checks, batchPointer); err != nil {
		return err
	}
	x.decide(s.Limiter, r, tenant)
	x.answer = appendBatchAnswer(x.answer[:0], x.decisions)
	x.headers.reset()
	x.write(w, http.StatusOK)
	return nil
}

// readCheck reads a body that is one check.
func (x *exchange) readCheck(w http.ResponseWriter, r *http.Request) error {
	if err := httpapi.ReadBody(w, r, maxBody, &x.body); err != nil {
		return err
	}
	x.reader.Reset(&x.body)
	x.checks = append(x.checks[:0], decodeCheck(&x.reader))
	return x.reader.Close()
}

// onePointer and batchPointer say where the plan of the i-th check stands in the body.
func onePointer(int) string     { return "/plan" }
func batchPointer(i int) string { return "/checks/" + strconv.Itoa(i) + "/plan" }

// choosePlans replaces the plan that each check names by the plan it is judged on. A plan that
// does not exist is the caller's mistake: judging such a check on another plan would hide it.
func choosePlans(tenant *rules.TenantRules, checks []enforce.Check, pointer func(i int) string) error {
	var unknown []httpapi.FieldError
	for i := range checks {
		plan, err := tenant.PlanOf(&checks[i].Request)
		if err != nil {
			unknown = append(unknown, httpapi.FieldError{
				Pointer: pointer(i),
				Detail:  "is not a plan of this tenant; leave it out to use the user's own",
			})
		}
		checks[i].Plan = plan
	}
	return httpapi.BodyProblem(unknown)
}

func (x *exchange) decide(limiter *enforce.Limiter, r *http.Request, tenant *rules.TenantRules) {
	if n := len(x.checks); cap(x.decisions) < n {
		x.decisions = make([]enforce.Decision, n)
	} else {
		x.decisions = x.decisions[:n]
	}
	limiter.Decide(r.Context(), tenant, x.checks, x.decisions)
}

var contentTypeJSON = []string{"application/json"}

// write sends the answer and the headers.
func (x *exchange) write(w http.ResponseWriter, status int) {
	h := w.Header()
	h["Content-Type"] = contentTypeJSON
	x.headers.addInt("Content-Length", int64(len(x.answer)))
	x.headers.writeTo(h)
	w.WriteHeader(status)
	_, _ = w.Write(x.answer) // a caller that went away needs no answer
}
