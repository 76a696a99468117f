package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestARecorderCountsExactlyWhatItIsFed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const recorders, callers, each, subjects = 2, 2, 50_000, 5_000
	ctx, end := context.WithCancel(t.Context())
	var feeding, running sync.WaitGroup
	began := time.Now()
	for range recorders {
		r := violations.NewRecorder(w, violations.Options{FlushInterval: 50 * time.Millisecond})
		running.Go(func() { r.Run(ctx, time.Minute) })
		for range callers {
			feeding.Go(func() {
				for i := range each {
					r.Record(time.Now(), &violations.Check{
						Tenant: w.ours.ID, Request: &rules.Request{UserID: fmt.Sprint(i % subjects)}, Plan: "free",
						Cost: violations.Token,
						Tiers: []violations.Tier{{
							Rule: &w.ours.user, Mode: rules.ModeEnforce, Subject: fmt.Sprint(i % subjects),
							Reason: "limit_exceeded", BucketRead: true,
						}},
					})
				}
			})
		}
	}
	feeding.Wait()
	fed := time.Since(began)
	end()
	running.Wait()
	const all = recorders * callers * each
	t.Logf("%.0f a second", all/fed.Seconds())

	var denied, counted int64
	err := connect(t, w.url).QueryRow(t.Context(), `
		SELECT (SELECT sum(denied) FROM violation_minute WHERE tenant_id = $1),
			(SELECT sum(detail_dropped) FROM violation_minute WHERE tenant_id = $1) +
			(SELECT sum(count) FROM rate_limit_violation WHERE tenant_id = $1)`, w.ours.ID).Scan(&denied, &counted)
	if err != nil {
		t.Fatal(err)
	}
	if denied != all || counted != all {
		t.Errorf("%d denials are counted, %d as rows and dropped detail, want %d", denied, counted, all)
	}
	exact := rowsIn(t, w.url, fmt.Sprintf(`(SELECT FROM violation_minute WHERE NOT other
		GROUP BY subject HAVING sum(denied) = %d) AS exact`, all/subjects))
	if exact != subjects {
		t.Errorf("%d users are counted exactly, want %d", exact, subjects)
	}
	top := must(w.Top(t.Context(), w.ours.ID, violations.TopOf{
		Dimension: violations.ByUser, Since: began.Add(-time.Minute), Until: time.Now().Add(time.Minute),
	}, 2*subjects))(t)
	known := top.Unattributed
	for _, user := range top.Values {
		known += user.Denied
		if user.Denied > all/subjects {
			t.Errorf("user %s was denied %d times, want %d at most", user.Value, user.Denied, all/subjects)
		}
	}
	if known != all {
		t.Errorf("the top knows of %d denials, want %d", known, all)
	}
}
