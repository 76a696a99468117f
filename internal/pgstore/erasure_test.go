package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// TestAnErasedUserIsNowhere writes a user into every table that can name one, erases the user, and searches all rows of
// all tables for the id.
func TestAnErasedUserIsNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	const mallory = "mallory@example.com"
	w.assign(t, ours, "pro", mallory, "mallory@example.com.au")
	override := overrideOf(w.ours.user, mallory)
	override.Reason = "Mallory asked for it"
	must(w.PutOverride(ctx, override, rules.AnyVersion))(t)
	named := must(w.CreateRule(ctx, limit(t, ours, "user:"+mallory, "", "")))(t)
	both := must(w.CreateRule(ctx, limit(t, ours, "user:{user_id}:endpoint:{endpoint}", "", "")))(t)
	pattern := both.Pattern
	subject := string(rules.AppendSubject(rules.AppendSubject(nil, mallory), "/a"))
	if user, ok := pattern.UserOfSubject(subject); !ok || user != mallory {
		t.Fatalf("%q is the subject of %q", subject, user)
	}
	for _, sql := range []string{
		`INSERT INTO violation_minute VALUES ($1, '2026-11-01', $2, $3, false, 5, 2), ($1, '2026-11-01', $2, '', true, 1, 1)`,
		`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key, scope, mode, reason,
			key_pattern, rule_version, rate_per_second, burst_capacity, cost, algorithm, limit_text,
			user_id, ip_address)
			VALUES ($1, now(), now(), 3, $2, $2::bigint || ':' || $3::text, 'user', 'enforce', 'limit_exceeded',
				'user:{user_id}', 1, 1, 1, 1, '', '', '` + mallory + `', '203.0.113.9')`,
		`INSERT INTO alert (tenant_id, name, rule_id, per_subject, threshold, window_minutes, url, secret, is_active)
			SELECT $1, 'loud', $2, true, 1, 1, '', '', false WHERE $3::text <> ''`,
		`INSERT INTO delivery (tenant_id, alert_id, subject, denied, since, raised_at)
			SELECT tenant_id, alert_id, $3, 1, now(), now() FROM alert WHERE tenant_id = $1 AND rule_id = $2`,
		`INSERT INTO quota_crossing (tenant_id, rule_id, subject, window_start, share, window_end, crossed_at, used, burst_capacity,
			mode, rule_name, key_pattern, user_id) VALUES ($1, $2, $3, now(), 80, now(), now(), 1, 1, '', '', '',
				'` + mallory + `')`,
	} {
		exec(t, w.url, sql, ours, both.ID, subject)
	}
	erased := must(w.EraseUser(ctx, ours, mallory))(t)
	want := rules.Erasure{
		ID: erased.ID, At: erased.At, Assignments: 1, Overrides: 1, Violations: 1, Counts: 1, Deliveries: 1,
		AuditEntries: erased.AuditEntries,
		Rules:        []rules.RuleID{named.ID},
	}
	if len(erased.Rules) != 1 || erased.Rules[0] != named.ID || erased.Violations != want.Violations ||
		erased.Counts != want.Counts ||
		erased.Deliveries != want.Deliveries || erased.Crossings != 1 || erased.Overrides != 1 ||
		erased.Assignments != 1 || erased.AuditEntries != 4 {
		t.Errorf("the receipt is %+v, want %+v", erased, want)
	}
	owner := connect(t, w.url)
	for _, table := range tablesOfTenants(t, owner) {
		for _, row := range lines(t, owner,
			"SELECT x::text FROM "+table+" AS x WHERE x::text LIKE '%mallory%' OR x::text LIKE '%Mallory%' OR "+
				"x::text LIKE '%203.0.113.9%'") {
			isRule := table == "rate_limit_rule" || table == "audit_event" && strings.Contains(row, "key_pattern")
			if !isRule && !strings.Contains(row, "mallory@example.com.au") {
				t.Errorf("%s still has %s", table, row)
			}
		}
	}
	got := lines(t, owner, "SELECT concat_ws(' ', subject, other, denied, detail_dropped) FROM violation_minute")
	if len(got) != 1 || got[0] != " t 6 3" {
		t.Errorf("the counts are %q, want those of the user among others", got)
	}
	if _, err := owner.Exec(ctx, "UPDATE audit_event SET act = ''"); !isRefusal(err) {
		t.Errorf("afterwards the log may be changed: %v", err)
	}
	// Nobody is left to erase, and other tenants cannot be reached.
	again := must(w.EraseUser(ctx, ours, mallory))(t)
	if again.Assignments+again.Overrides+again.Violations+again.Counts+again.Deliveries+again.AuditEntries != 0 {
		t.Errorf("again: %+v", again)
	}
	_, err := asTenant(t, connect(t, runtimeOf(t, w.url)), tenantRoleOf(t, owner), "1",
		"SELECT erase_user_from_audit(2, '42', 'x')")
	if !isRefusal(err) {
		t.Errorf("another tenant's log: %v", err)
	}
}

// TestAnErasureThatEndsMidwayCanBeRepeated cancels an erasure after its first transaction. Only the receipt, which is
// written last, marks the request as carried out.
func TestAnErasureThatEndsMidwayCanBeRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.assign(t, ours, "pro", "mallory")
	once := auth.IdempotentRequest{Tenant: ours, Key: auth.Digest{1}, Caller: "account:1", Fingerprint: auth.Digest{2}}
	begin := func() (auth.IdempotentRequest, error) {
		begun, _, err := w.BeginIdempotent(ctx, once, time.Minute)
		return begun, err
	}
	first := must(begin())(t)
	owner := connect(t, w.url)
	locked := must(owner.Begin(ctx))(t)
	must(locked.Exec(ctx, "LOCK TABLE delivery IN ACCESS EXCLUSIVE MODE"))(t)
	erasing, cancel := context.WithCancel(auth.WithIdempotency(ctx, first))
	failed := make(chan error, 1)
	go func() {
		_, err := w.EraseUser(erasing, ours, "mallory")
		failed <- err
	}()
	watching := connect(t, w.url)
	for held := 0; held == 0 && len(failed) == 0; {
		const query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type " +
			"= 'Lock'"
		if err := watching.QueryRow(ctx, query).Scan(&held); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("a canceled erasure returns %v", err)
	}
	if err := locked.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := lines(t, owner, "SELECT user_id FROM plan_assignment WHERE user_id = 'mallory'"); len(n) != 0 {
		t.Error("its first transaction is not committed, so nothing is shown")
	}
	if err := w.ForgetIdempotent(ctx, first); err != nil {
		t.Fatal(err)
	}
	second := must(begin())(t)
	must(w.EraseUser(auth.WithIdempotency(ctx, second), ours, "mallory"))(t)
	_, err := begin()
	wantError(t, err, auth.ErrIdempotencyAnswerLost)
}

func TestUpkeepDropsWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	fillEveryTable(t, w)
	w.assign(t, w.ours.ID, "", "42")
	exec(t, w.url, `INSERT INTO session (account_id, token_digest, created_at) VALUES
		(1, sha256('old'), now() - interval '40 days'), (1, sha256('new'), now())`)
	exec(t, w.url, `UPDATE invitation SET expires_at = now() - interval '40 days' WHERE tenant_id = $1`, w.ours.ID)
	exec(t, w.url, "DELETE FROM mailed_link")
	exec(t, w.url, `INSERT INTO mailed_link (account_id, purpose, token_digest, expires_at) VALUES
		(1, 'reset', sha256('old'), now() - interval '25 hours'),
			(1, 'proof', sha256('young'), now() - interval '23 hours'),
		(1, 'sign_in', sha256('open'), now() + interval '1 hour')`)
	exec(t, w.url, "UPDATE plan_assignment SET removed_at = now() - interval '40 days' WHERE removed_at IS NOT NULL")
	exec(t, w.url, `SET session_replication_role = replica;
		UPDATE audit_event SET at = at - interval '400 days' WHERE audit_id % 2 = 0; UPDATE platform_audit_event
			SET at = at - interval '400 days' WHERE audit_id = 1`)
	count := func() string {
		return lines(t, connect(t, w.url),
			`SELECT concat_ws(' ', (SELECT count(*) FROM session), (SELECT count(*) FROM invitation),
			(SELECT count(*) FROM plan_assignment),
				(SELECT count(*) FROM audit_event WHERE at < now() - interval '1 year'),
			(SELECT count(*) FROM platform_audit_event WHERE at < now() - interval '1 year'))`)[0]
	}
	before := count()
	must(w.KeepViolations(t.Context(), time.Now(), keep))(t)
	got := count()
	if rest, ok := strings.CutPrefix(got, "1 1 1 "); !ok || !strings.HasSuffix(before, rest) ||
		strings.HasPrefix(rest, "0") {
		t.Errorf("sessions, invitations, assignments and old audit entries were %s and are %s, want one each and the "+
			"entries", before, got)
	}
	if left := lines(t, connect(t, w.url), "SELECT purpose FROM mailed_link ORDER BY 1"); !slices.Equal(left,
		[]string{"proof", "sign_in"}) {
		t.Errorf("of the links are left %v", left)
	}
	for range 2 {
		kept := keep
		kept.Audit = 60 * day
		must(w.KeepViolations(t.Context(), time.Now(), kept))(t)
	}
	if got := count(); got != "1 1 1 0 0" {
		t.Errorf("with a retention of audit entries they are %s", got)
	}
	if _, err := connect(t, runtimeOf(t, w.url)).Exec(t.Context(),
		"SELECT drop_audit_events(now() - interval '1 day', 10)"); err == nil {
		t.Error("yesterday's entries may be dropped")
	}
}
