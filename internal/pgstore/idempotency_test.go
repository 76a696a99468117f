package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestARequestSurvivesTheEndOfItsProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, tenant := t.Context(), w.ours.ID
	once := auth.IdempotentRequest{
		Tenant: tenant, Key: auth.Digest{1}, Caller: "account:1",
		Fingerprint: auth.Digest{2},
	}
	begin := func() (auth.IdempotentRequest, []byte, error) { return w.BeginIdempotent(ctx, once, time.Minute) }
	first, answer, err := begin()
	if err != nil || answer != nil {
		t.Fatal(answer, err)
	}
	var running auth.IdempotencyRunningError
	if _, _, err := begin(); !errors.As(err, &running) || running.Left < 50*time.Second {
		t.Errorf("while it runs: %v, %v", err, running.Left)
	}
	exec(t, w.url, "UPDATE idempotency SET lease_ends_at = now() - interval '1 second'")
	second, _, err := begin()
	if err != nil || second.Attempt() != 2 {
		t.Fatal(second, err)
	}
	create := func(attempt auth.IdempotentRequest) error {
		_, err := w.CreatePlan(auth.WithIdempotency(ctx, attempt), rules.Plan{TenantID: tenant, Name: "once"})
		return err
	}
	wantError(t, create(first), rules.ErrBeingWritten)
	if err := create(second); err != nil {
		t.Fatal(err)
	}
	exec(t, w.url, "UPDATE idempotency SET lease_ends_at = now() - interval '1 second'")
	if err := w.ForgetIdempotent(ctx, second); err != nil {
		t.Fatal(err)
	}
	_, _, err = begin()
	wantError(t, err, auth.ErrIdempotencyAnswerLost)
	if err := w.KeepAnswer(ctx, second, []byte("sealed")); err != nil {
		t.Fatal(err)
	}
	if _, answer, err := begin(); err != nil || string(answer) != "sealed" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	other := once
	other.Fingerprint = auth.Digest{3}
	_, _, err = w.BeginIdempotent(ctx, other, time.Minute)
	wantError(t, err, auth.ErrIdempotencyReused)
	exec(t, w.url, "UPDATE idempotency SET started_at = now() - interval '25 hours'")
	if _, answer, err := w.BeginIdempotent(ctx, other, time.Minute); err != nil || answer != nil {
		t.Errorf("after a day: %q, %v", answer, err)
	}
}

func TestRequestsAreKeptForADayAndSomeOfEachCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`INSERT INTO idempotency (tenant_id, key_digest, caller, fingerprint, attempt, started_at, lease_ends_at,
			number)
		SELECT 1, sha256(n::text::bytea), 'busy', sha256(''), 1, now() - n * interval '1 second',
			now(), 2011 - n FROM generate_series(1, 2010) AS n
		UNION ALL SELECT 1, sha256('new'), 'calm', sha256(''), 1, now() - interval '23 hours', now(), 2
		UNION ALL SELECT 1, sha256('old'), 'calm', sha256(''), 1, now() - interval '25 hours', now(), 1`)
	kept := must(w.KeepViolations(t.Context(), time.Now(), keep))(t)
	if kept.RowsDropped != 1 {
		t.Errorf("%d were dropped, want 1", kept.RowsDropped)
	}
	for i := range byte(20) {
		if _, _, err := w.BeginIdempotent(t.Context(),
			auth.IdempotentRequest{Tenant: 1, Key: auth.Digest{i}, Caller: "busy"},
			time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	var first int64
	err := connect(t, w.url).QueryRow(t.Context(),
		"SELECT count(*), min(number) FROM idempotency WHERE caller = 'busy'").Scan(&n, &first)
	if err != nil || n != auth.IdempotencyPerCaller || first != 31 {
		t.Errorf("%d of a busy caller are kept from the %dth on (%v), want the latest %d", n, first, err,
			auth.IdempotencyPerCaller)
	}
}

func TestACallersRequestsAreNotReadToKeepTheirCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`INSERT INTO idempotency (tenant_id, key_digest, caller, fingerprint, attempt, lease_ends_at, number)
		SELECT 1, sha256((c || '-' || n)::bytea), 'account:' || c, sha256(''), 1, now(), n
		FROM generate_series(1, 10) AS c, generate_series(1, 2000) AS n`)
	exec(t, w.url, "ANALYZE idempotency")
	for _, name := range []string{"BeginIdempotent :one", "DropCallersIdempotent :exec"} {
		query := queryOf(t, "idempotency.sql", name, map[string]string{
			"tenant_id": "1", "caller": "'account:1'", "key_digest": "sha256('new')", "fingerprint": "sha256('')",
			"lease_seconds": "60", "up_to": "1",
		})
		notMoreThan(t, lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query), 20)
	}
}
