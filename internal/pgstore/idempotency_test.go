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
	// The first process stands still until its lease has ended, and another one begins.
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
	// It is carried out, so neither the end of the lease nor forgetting lets anybody begin again.
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
	// After a day the key is free.
	exec(t, w.url, "UPDATE idempotency SET started_at = now() - interval '25 hours'")
	if _, answer, err := w.BeginIdempotent(ctx, other, time.Minute); err != nil || answer != nil {
		t.Errorf("after a day: %q, %v", answer, err)
	}
}

func TestRequestsAreKeptForADayAndSomeOfEachCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`INSERT INTO idempotency (tenant_id, key_digest, caller, fingerprint, attempt, started_at, lease_ends_at)
		SELECT 1, sha256(n::text::bytea), 'busy', sha256(''), 1, now() - n * interval '1 second',
			now() FROM generate_series(1, 2010) AS n
		UNION ALL SELECT 1, sha256('new'), 'calm', sha256(''), 1, now() - interval '23 hours', now()
		UNION ALL SELECT 1, sha256('old'), 'calm', sha256(''), 1, now() - interval '25 hours', now()`)
	dropped, err := w.DropOldIdempotent(t.Context())
	if err != nil || dropped != 1 {
		t.Errorf("%d were dropped, want 1: %v", dropped, err)
	}
	for i := range byte(200) { // about 50 of them delete up to 10 each
		if _, _, err := w.BeginIdempotent(t.Context(),
			auth.IdempotentRequest{Tenant: 1, Key: auth.Digest{i}, Caller: "busy"},
			time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	var kept int
	err = connect(t, w.url).QueryRow(t.Context(), "SELECT count(*) FROM idempotency WHERE caller = 'busy'").Scan(&kept)
	if err != nil || kept < auth.IdempotencyPerCaller || kept > auth.IdempotencyPerCaller+60 {
		t.Errorf("%d of a busy caller are kept (%v), want about %d", kept, err, auth.IdempotencyPerCaller)
	}
}
