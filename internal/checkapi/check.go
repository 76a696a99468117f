package checkapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// scratch is the reusable memory of one request. Strings read from it are copies; nothing else may be used after release.
type scratch struct {
	body      bytes.Buffer // over the server's memory
	reader    httpapi.Reader
	checks    []enforce.Check
	decisions []enforce.Decision
	answer    []byte
	headers   headerText
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// keptChecks is the largest batch request whose memory is reused.
const keptChecks = 256

// release makes the memory available again, unless a large batch grew it: single checks would keep that alive.
func (x *scratch) release() {
	if cap(x.answer) > 2*keptAnswer || cap(x.checks) > keptChecks {
		return
	}
	x.body = bytes.Buffer{}
	clear(x.checks)
	for i := range x.decisions {
		x.decisions[i].Reset()
	}
	x.checks, x.decisions = x.checks[:0], x.decisions[:0]
	scratches.Put(x)
}

// Close is called by fasthttp when it resets a request, after its answer was written.
func (x *scratch) Close() error {
	x.release()
	return nil
}

// scratchOf returns memory for a request, until its answer is written.
func scratchOf(c *fasthttp.RequestCtx) *scratch {
	x := scratches.Get().(*scratch)
	c.SetUserValue("scratch", x)
	return x
}

// check handles POST /v1/check.
func (s *surface) check(c *fasthttp.RequestCtx, tenant *snapshot.Tenant) error {
	x := scratchOf(c)
	if err := x.readCheck(c.PostBody()); err != nil {
		return err
	}
	if err := choosePlans(tenant, x.checks, onePointer); err != nil {
		return err
	}
	x.decide(c, s.Limiter, tenant)
	d := &x.decisions[0]
	x.answer = appendAnswer(x.answer[:0], d)
	x.headers.reset()
	x.headers.addRateLimit(d, s.Now(), jitter(&tenant.Tenant, &x.checks[0].Request))
	x.headers.writeTo(&c.Response.Header)
	write(c, status(d), jsonType, x.answer)
	return nil
}

// checkBatch handles POST /v1/check/batch.
func (s *surface) checkBatch(c *fasthttp.RequestCtx, tenant *snapshot.Tenant) error {
	x := scratchOf(c)
	x.read(c.PostBody())
	x.checks = decodeBatch(&x.reader, x.checks[:0])
	if err := x.reader.Close(); err != nil {
		return err
	}
	if err := choosePlans(tenant, x.checks, batchPointer); err != nil {
		return err
	}
	x.decide(c, s.Limiter, tenant)
	x.answer = appendBatchAnswer(x.answer[:0], x.decisions)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}

const jsonType = "application/json"

// read starts to read a body, which must not change meanwhile.
func (x *scratch) read(body []byte) {
	x.body = *bytes.NewBuffer(body)
	x.reader.Reset(&x.body)
}

// readCheck reads a body that is one check.
func (x *scratch) readCheck(body []byte) error {
	x.read(body)
	x.checks = append(x.checks[:0], decodeCheck(&x.reader))
	return x.reader.Close()
}

// onePointer and batchPointer return the JSON pointer of the i-th check's plan.
func onePointer(int) string     { return "/plan" }
func batchPointer(i int) string { return "/checks/" + strconv.Itoa(i) + "/plan" }

// choosePlans sets the plan that each check is judged on. It refuses a plan that does not exist: judging the check on
// another one would hide the caller's mistake.
func choosePlans(tenant *snapshot.Tenant, checks []enforce.Check, pointer func(i int) string) error {
	var unknown []httpapi.FieldError
	for i := range checks {
		plan, err := tenant.PlanOf(&checks[i].Request)
		if err != nil {
			unknown = append(unknown, httpapi.FieldError{
				Pointer: pointer(i),
				Detail:  "is not a plan of this tenant; leave it out to use the user's own",
			})
		}
		checks[i].EffectivePlan = plan
	}
	return httpapi.BodyProblem(unknown)
}

func (x *scratch) decide(ctx context.Context, limiter *enforce.Limiter, tenant *snapshot.Tenant) {
	if n := len(x.checks); cap(x.decisions) < n {
		x.decisions = make([]enforce.Decision, n)
	} else {
		x.decisions = x.decisions[:n]
	}
	limiter.Decide(ctx, tenant, x.checks, x.decisions)
}
