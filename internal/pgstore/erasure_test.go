package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

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
		`INSERT INTO violation_minute VALUES ($1, '2026-11-01', $2, $3, false, 5, 2), ($1, '2026-11-01', $2, '', true,
			1, 1)`,
		`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key, scope, mode,
			reason,
			key_pattern, rule_version, rate_per_second, burst_capacity, cost, algorithm, limit_text,
			user_id, ip_address)
			VALUES ($1, now(), now(), 3, $2, $2::bigint || ':' || $3::text, 'user', 'enforce', 'limit_exceeded',
				'user:{user_id}', 1, 1, 1, 1, '', '', '` + mallory + `', '203.0.113.9')`,
		`INSERT INTO alert (tenant_id, name, rule_id, per_subject, threshold, window_minutes, url, secret, is_active)
			SELECT $1, 'loud', $2, true, 1, 1, '', '', false WHERE $3::text <> ''`,
		`INSERT INTO delivery (tenant_id, alert_id, subject, denied, since, raised_at, kind, per_subject, threshold,
				window_minutes, mode)
			SELECT tenant_id, alert_id, $3, 1, now(), now(), kind, per_subject, threshold, window_minutes, ''
				FROM alert WHERE tenant_id = $1 AND rule_id = $2`,
		`INSERT INTO quota_crossing (tenant_id, rule_id, subject, window_start, share, window_end, crossed_at, used,
			burst_capacity,
			mode, rule_name, key_pattern, user_id) VALUES ($1, $2, $3, now(), 80, now(), now(), 1, 1, '', '', '',
				'` + mallory + `')`,
		`INSERT INTO denial_count SELECT $1, 'user', now(), $2, 'enforce', unnest(ARRAY['` + mallory + `', '']),
			unnest(ARRAY[false, true]), 2 WHERE $3::text <> ''`,
		`INSERT INTO recent_check SELECT $1, 'user', now(), '` + mallory + `', 60 + $2 WHERE $3::text <> ''`,
		`WITH e AS (
				INSERT INTO export (tenant_id, requested_by_kind, requested_by_id, request)
				SELECT $1, '', '', jsonb_build_object('user_id', '` + mallory + `')
				WHERE $2::bigint > 0 AND $3::text <> ''
				RETURNING export_id)
			INSERT INTO export_chunk SELECT $1, export_id, 0, '' FROM e`,
	} {
		exec(t, w.url, sql, ours, both.ID, subject)
	}
	erased := w.erase(t, ours, mallory)
	want := map[string]int64{
		"assignments": 1, "overrides": 1, "violations": 1, "crossings": 1, "months": 0, "counts": 3, "deliveries": 1,
		"traffic_blocks": 0, "replays": 0, "audit_entries": 4, "exports": 1, "buckets": 3,
	}
	if !maps.Equal(erased, want) {
		t.Errorf("the receipt counts %v, want %v", erased, want)
	}
	receipt := lines(t, connect(t, w.url), "SELECT concat_ws(' ', rules, user_id IS NULL) FROM user_erasure")
	if len(receipt) != 1 || receipt[0] != fmt.Sprintf("{%d} t", named.ID) {
		t.Errorf("the receipts say %q, want the rule %d alone", receipt, named.ID)
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
	got = lines(t, owner, "SELECT concat_ws(' ', value, other, denied) FROM denial_count")
	if len(got) != 1 || got[0] != " t 4" {
		t.Errorf("the denials are %q, want those of the user among others", got)
	}
	if _, err := owner.Exec(ctx, "UPDATE audit_event SET act = ''"); !isRefusal(err) {
		t.Errorf("afterwards the log may be changed: %v", err)
	}
	again := w.erase(t, ours, mallory)
	delete(again, "buckets")
	for step, rows := range again {
		if rows != 0 {
			t.Errorf("again %d of %s are erased", rows, step)
		}
	}
	_, err := asTenant(t, connect(t, runtimeOf(t, w.url)), tenantRoleOf(t, owner), "1",
		"SELECT erase_user_from_audit(2, '42', 'x', 0, 100)")
	if !isRefusal(err) {
		t.Errorf("another tenant's log: %v", err)
	}
}

func TestAUserOfSubjectsThatWereCutIsErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours, now := t.Context(), w.ours.ID, time.Now()
	const mallory, other = "mallory@example.com", "someone@example.com"
	first := must(w.CreateRule(ctx, limit(t, ours, "user:{user_id}:endpoint:{endpoint}", "", "")))(t)
	last := must(w.CreateRule(ctx, limit(t, ours, "endpoint:{endpoint}:user:{user_id}", "", "")))(t)
	recorder := violations.NewRecorder(w, violations.Options{FlushInterval: time.Minute})
	deny := func(rule *rules.Rule, user string, values ...string) {
		var subject []byte
		for _, value := range values {
			subject = rules.AppendSubject(subject, value)
		}
		for range 12 {
			recorder.Record(now, &violations.Check{
				Tenant: ours, Request: &rules.Request{UserID: user}, Plan: "free", Cost: violations.Token,
				Tiers: []violations.Tier{{
					Rule: rule, Mode: rules.ModeEnforce, Subject: string(subject), Reason: "limit_exceeded",
				}},
			})
		}
	}
	long, almost := "/"+strings.Repeat("é", 509)+"/", "/"+strings.Repeat("a", 1003)
	for _, user := range []string{mallory, other} {
		deny(&first, user, user, long)
		deny(&last, user, almost, user) // of whose id seven bytes are left
	}
	if err := recorder.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for _, rule := range []rules.Rule{first, last} {
		must(w.CreateAlert(ctx, tester, alertOn(rule, true)))(t)
	}
	must(w.raise(ctx, ours, now))(t)
	counts, _, err := w.CountsOfUser(ctx, ours, mallory, time.Unix(0, 0))
	if err != nil || len(counts) != 2 {
		t.Errorf("an export has the counts %+v (%v), want two", counts, err)
	}
	erased := w.erase(t, ours, mallory)
	if erased["counts"] < 2 || erased["deliveries"] != 2 {
		t.Errorf("the receipt counts %v, want two subjects and two deliveries", erased)
	}
	owner := connect(t, w.url)
	for _, table := range []string{"violation_minute", "delivery"} {
		found := lines(t, owner, "SELECT subject FROM "+table+" WHERE subject LIKE '%mallory%'")
		if len(found) != 0 {
			t.Errorf("%s still has %q", table, found)
		}
		if found = lines(t, owner, "SELECT subject FROM "+table+" WHERE subject LIKE '%someone%'"); len(found) != 2 {
			t.Errorf("%s has %q of the other user, want two", table, found)
		}
	}
}

func threeBuckets(context.Context, rules.TenantID, string) (int64, error) { return 3, nil }

func (w *world) workOn(t *testing.T, kind jobs.Kind, tenant rules.TenantID, erasure rules.Erasure) rules.Erasure {
	t.Helper()
	for turn := 0; erasure.FinishedAt.IsZero() && erasure.Error == "" && turn < 100; turn++ {
		w.work(t, kind)
		erasure = must(w.Erasure(t.Context(), tenant, erasure.ID))(t)
	}
	return erasure
}

func (w *world) erase(t *testing.T, tenant rules.TenantID, user string) map[string]int64 {
	t.Helper()
	erasure := must(w.EraseUser(t.Context(), tenant, user))(t)
	erasure = w.workOn(t, w.ErasureWork(threeBuckets), tenant, erasure)
	if erasure.FinishedAt.IsZero() {
		t.Fatalf("it is not finished: %+v", erasure)
	}
	rows := map[string]int64{}
	for _, step := range erasure.Steps {
		rows[step.Name] = step.Rows
	}
	return rows
}

func TestAnErasureSurvivesProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	const users, counts, violated = 3, 1500, 400
	w.EraseInPiecesOf(5)
	w.assign(t, ours, "pro", "mallory")
	must(w.PutOverride(ctx, overrideOf(w.ours.user, "mallory"), rules.AnyVersion))(t)
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, timestamptz '2026-11-01Z' + make_interval(mins => i), $2,
			CASE u WHEN 1 THEN 'mallory' ELSE 'user' || u END, false, 2, 1
		FROM generate_series(1, $3) AS i, generate_series(1, $4) AS u`, ours, w.ours.user.ID, counts, users)
	exec(t, w.url, `INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key,
		scope,
			mode, reason, key_pattern, rule_version, rate_per_second, burst_capacity, cost, algorithm, limit_text,
			user_id)
		SELECT $1, now(), now(), 1, $2, 'mallory', 'user', 'enforce', 'limit_exceeded', 'user:{user_id}', 1, 1, 1, 1,
			'', '', 'mallory' FROM generate_series(1, $3)`, ours, w.ours.user.ID, violated)
	first := must(w.EraseUser(ctx, ours, "mallory"))(t)
	doomed := must(url.Parse(runtimeOf(t, w.url)))(t)
	doomed.RawQuery += "&application_name=doomed"
	process := must(pgstore.Open(ctx, doomed.String(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(process.Close)
	process.EraseInPiecesOf(5)
	kind, killer := process.ErasureWork(threeBuckets), connect(t, w.url)
	erased := func() (rows int64) {
		for _, step := range must(w.Erasure(ctx, ours, first.ID))(t).Steps {
			rows += step.Rows
		}
		return rows
	}
	for kill := range 50 {
		if again := must(w.EraseUser(ctx, ours, "mallory"))(t); again.ID != first.ID {
			t.Fatalf("while %s goes on, another erasure of the user began: %s", first.ID, again.ID)
		}
		job := w.claim(t, kind.Name)
		before := erased()
		working, end := context.WithCancel(ctx)
		ended := make(chan bool, 1)
		go func() {
			_, _ = kind.Do(working, &job) // it is killed
			ended <- true
		}()
		for deadline := time.Now().Add(time.Minute); erased() == before && len(ended) == 0; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("no piece is erased in a minute")
			}
		}
		if kill%2 == 0 {
			must(killer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'doomed'`))(t)
		}
		end()
		<-ended
		if !must(w.Erasure(ctx, ours, first.ID))(t).FinishedAt.IsZero() {
			t.Fatalf("it was finished after %d kills", kill)
		}
		must(killer.Exec(ctx, "UPDATE job SET next_run_at = now(), lease_ends_at = now()"))(t)
	}
	job := w.claim(t, kind.Name)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			for {
				again, err := kind.Do(ctx, &job)
				if err != nil || again.IsZero() {
					done <- err
					return
				}
			}
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	receipt := must(w.Erasure(ctx, ours, first.ID))(t)
	rows := map[string]int64{}
	for _, step := range receipt.Steps {
		rows[step.Name] = step.Rows
	}
	if receipt.FinishedAt.IsZero() || rows["counts"] != counts || rows["violations"] != violated ||
		rows["assignments"] != 1 || rows["overrides"] != 1 || rows["buckets"] != 3 || rows["audit_entries"] != 4 {
		t.Errorf("the receipt is %+v", receipt)
	}
	got := lines(t, killer, `SELECT concat_ws(' ', sum(denied), sum(detail_dropped), count(*) FILTER (WHERE other),
		count(*) FILTER (WHERE subject = 'mallory')) FROM violation_minute`)
	if want := fmt.Sprint(2*users*counts, " ", users*counts, " ", counts, " 0"); got[0] != want {
		t.Errorf("the counts are %q, want %q", got[0], want)
	}
	got = lines(t, killer, `SELECT (SELECT count(*) FROM user_erasure) || ' ' || (SELECT count(*) FROM audit_event
		WHERE object_kind = 'user' AND object_id = $1 AND after ? 'counts')`, first.ID)
	if got[0] != "1 1" {
		t.Errorf("erasures and receipts in the log are %q, want one each", got[0])
	}
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
