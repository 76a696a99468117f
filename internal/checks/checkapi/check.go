package checkapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
)

// scratch is reusable memory; except for strings, all of it is invalid after release.
type scratch struct {
	body      bytes.Buffer // over the server's memory
	reader    httpapi.Reader
	checks    []enforce.Check
	decisions []enforce.Decision
	answer    []byte
	headers   checkjson.Headers
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

const keptChecks = 256

// A large batch's memory is not kept.
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

// Close is called by fasthttp after the answer was written.
func (x *scratch) Close() error {
	x.release()
	return nil
}

func scratchOf(c *fasthttp.RequestCtx) *scratch {
	x := scratches.Get().(*scratch)
	c.SetUserValue("scratch", x)
	return x
}

func (s *surface) check(c *fasthttp.RequestCtx, by caller) error {
	x, tenant := scratchOf(c), by.tenant
	if err := x.readCheck(c.PostBody()); err != nil {
		return err
	}
	if err := checkjson.ChoosePlans(tenant, x.checks, checkjson.OnePlan); err != nil {
		return err
	}
	if err := mayRecord(x.checks, by); err != nil {
		return err
	}
	x.decide(c, s.Limiter, by)
	d := &x.decisions[0]
	if d.Record && !d.Allowed {
		c.Response.Header.Set("Retry-After", "1")
		return notRecorded(d)
	}
	jitter := checkjson.Jitter(&tenant.Tenant, &x.checks[0].Request)
	x.answer = checkjson.AppendDecision(x.answer[:0], d, jitter)
	x.headers.Reset()
	x.headers.AddRateLimit(d, s.Now(), jitter)
	for name, value := range x.headers.All() {
		c.Response.Header.SetCanonical([]byte(name), value) // as it is: RateLimit, not Ratelimit
	}
	write(c, checkjson.Status(d), jsonType, x.answer)
	return nil
}

func (s *surface) checkBatch(c *fasthttp.RequestCtx, by caller) error {
	x, tenant := scratchOf(c), by.tenant
	x.read(c.PostBody())
	x.checks = checkjson.DecodeBatch(&x.reader, x.checks[:0])
	if err := x.reader.Close(); err != nil {
		return err
	}
	if err := checkjson.ChoosePlans(tenant, x.checks, checkjson.BatchPlan); err != nil {
		return err
	}
	if err := mayRecord(x.checks, by); err != nil {
		return err
	}
	x.decide(c, s.Limiter, by)
	x.answer = checkjson.AppendBatch(x.answer[:0], &tenant.Tenant, x.checks, x.decisions)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}

func mayRecord(checks []enforce.Check, by caller) error {
	for i := range checks {
		if checks[i].Record && !slices.Contains(by.key.Permissions, auth.PermissionReport) {
			return httpapi.Forbidden.Problem("Use an API key with the permission report to record.")
		}
	}
	return nil
}

func notRecorded(d *enforce.Decision) error {
	if d.Reason == enforce.RecordIDsExhausted {
		return httpapi.RecordIDsExhausted.Problem(fmt.Sprintf(
			"The tenant sent more than %d records with ids within two minutes; send the record again later.",
			enforce.MaxRecordIDs))
	}
	return httpapi.Unavailable.Problem(
		"The store of buckets did not answer in time; the record may be charged. Send the record again if it has a " +
			"record_id.")
}

const jsonType = "application/json"

// The body must not change until Close.
func (x *scratch) read(body []byte) {
	x.body = *bytes.NewBuffer(body)
	x.reader.Reset(&x.body)
}

func (x *scratch) readCheck(body []byte) error {
	x.read(body)
	x.checks = append(x.checks[:0], checkjson.DecodeCheck(&x.reader))
	return x.reader.Close()
}

func (x *scratch) decide(ctx context.Context, limiter *enforce.Limiter, by caller) {
	for i := range x.checks {
		x.checks[i].Key = by.key.ID
	}
	if n := len(x.checks); cap(x.decisions) < n {
		x.decisions = make([]enforce.Decision, n)
	} else {
		x.decisions = x.decisions[:n]
	}
	limiter.Decide(ctx, by.tenant, x.checks, x.decisions)
}

func (s *surface) explain(c *fasthttp.RequestCtx, by caller) error {
	answer, err := checkjson.Explain(c, s.Limiter, c.PostBody(), by.tenant, s.Now())
	if err != nil {
		return err
	}
	write(c, http.StatusOK, jsonType, answer)
	return nil
}
