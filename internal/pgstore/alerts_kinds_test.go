package pgstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) decide(t *testing.T, tenant rules.TenantID, rule rules.RuleID, at time.Time, v violations.Verdicts) {
	t.Helper()
	err := w.WriteViolations(t.Context(), &violations.Batch{
		Writer: fmt.Sprint("decisions of ", tenant, rule), Number: at.UnixNano(),
		Decisions: []violations.DecisionCount{{
			Tenant: tenant, Rule: rule, Minute: at.Truncate(time.Minute),
			Verdicts: v,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) crossQuota(t *testing.T, rule rules.Rule, subject string, at time.Time) {
	t.Helper()
	err := w.WriteViolations(t.Context(), &violations.Batch{
		Writer: fmt.Sprint("crossings of ", rule.ID, subject), Number: at.UnixNano(),
		Crossings: []violations.Crossing{{
			Tenant: rule.TenantID, Rule: rule.ID, Subject: subject, WindowStart: at, WindowEnd: at.Add(time.Hour),
			Share: 80, At: at,
			Burst: 50, Mode: rules.ModeEnforce, Pattern: "user:{user_id}",
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatEachKindOfAlertCounts(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Minute).Add(20 * time.Second)
	tests := map[string]struct {
		kind       violations.AlertKind
		everyRule  bool
		perSubject bool
		happens    func(t *testing.T, w *world)
		want       []string // rule and subject: u is our rule user, d is daily
	}{
		"denials of each rule by itself": {violations.AlertDenials, true, false, func(t *testing.T, w *world) {
			w.deny(t, w.ours.user, "1", now, 6)
			w.deny(t, w.ours.user, "2", now, 6)
			w.deny(t, w.ours.daily, "1", now, 9)
			w.deny(t, w.theirs.user, "1", now, 99)
		}, []string{"u "}},
		"denials of each subject of each rule": {violations.AlertDenials, true, true, func(t *testing.T, w *world) {
			w.deny(t, w.ours.user, "1", now, 10)
			w.deny(t, w.ours.user, "2", now, 9)
			w.deny(t, w.ours.daily, "1", now, 11)
		}, []string{"d 1", "u 1"}},
		"crossings of a rule": {violations.AlertCrossings, false, false, func(t *testing.T, w *world) {
			for n := range 10 {
				w.crossQuota(t, w.ours.user, fmt.Sprint(n), now.Add(-time.Second))
			}
			w.crossQuota(t, w.ours.daily, "1", now.Add(-time.Second))
		}, []string{"u "}},
		"too few crossings": {violations.AlertCrossings, true, false, func(t *testing.T, w *world) {
			for n := range 6 {
				w.crossQuota(t, w.ours.user, fmt.Sprint(n), now.Add(-time.Second))
				w.crossQuota(t, w.ours.daily, fmt.Sprint(n), now.Add(-time.Second))
				w.crossQuota(t, w.ours.user, fmt.Sprint("old", n), now.Add(-10*time.Minute))
			}
		}, nil},
		"degraded decisions of all checks": {violations.AlertDegraded, true, false, func(t *testing.T, w *world) {
			w.decide(t, w.ours.ID, 0, now, violations.Verdicts{Allowed: 12, Degraded: 10})
			w.decide(t, w.ours.ID, w.ours.user.ID, now, violations.Verdicts{Allowed: 12, Degraded: 10})
		}, []string{"0 "}},
		"degraded decisions of a rule": {violations.AlertDegraded, false, false, func(t *testing.T, w *world) {
			w.decide(t, w.ours.ID, w.ours.user.ID, now, violations.Verdicts{Allowed: 12, Degraded: 10})
			w.decide(t, w.theirs.ID, w.theirs.user.ID, now, violations.Verdicts{Allowed: 12, Degraded: 10})
		}, []string{"u "}},
		"checks near a rule's limit": {violations.AlertNearLimit, false, false, func(t *testing.T, w *world) {
			w.decide(t, w.ours.ID, w.ours.user.ID, now, violations.Verdicts{Allowed: 99, NearLimit: 9, Denied: 1})
		}, []string{"u "}},
		"checks near each rule's limit": {violations.AlertNearLimit, true, false, func(t *testing.T, w *world) {
			w.decide(t, w.ours.ID, 0, now, violations.Verdicts{Allowed: 100, Denied: 100})
			w.decide(t, w.ours.ID, w.ours.user.ID, now, violations.Verdicts{Allowed: 100, NearLimit: 9})
			w.decide(t, w.ours.ID, w.ours.daily.ID, now, violations.Verdicts{Allowed: 50, NearLimit: 5})
		}, []string{"d "}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			alert := alertOn(w.ours.user, test.perSubject) // of 10, which is 10 % near a limit
			if alert.Kind = test.kind; test.everyRule {
				alert.Rule = 0
			}
			alert = must(w.CreateAlert(t.Context(), tester, alert))(t)
			test.happens(t, w)
			for range 2 {
				must(w.raise(t.Context(), w.ours.ID, now))(t)
			}
			var got, previewed []string
			names := map[rules.RuleID]string{0: "0", w.ours.user.ID: "u", w.ours.daily.ID: "d"}
			for _, d := range must(w.AlertDeliveries(t.Context(), w.ours.ID, alert.ID, 0, 10))(t) {
				got = append(got, names[d.Rule]+" "+d.Subject)
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("it is raised for %q, want %q", got, test.want)
			}
			counts, since, err := w.AlertCounts(t.Context(), &alert, now.Add(-week), now.Add(time.Minute))
			if err != nil || !since.Equal(now.Add(-week)) {
				t.Fatalf("counts since %s, %v", since, err)
			}
			for _, firing := range alert.Preview(counts, now.Add(time.Minute)) {
				previewed = append(previewed, names[firing.Rule]+" "+firing.Subject)
			}
			if slices.Sort(previewed); !slices.Equal(previewed, test.want) {
				t.Errorf("the preview has %q, want %q", previewed, test.want)
			}
		})
	}
}

const week = 7 * 24 * time.Hour

func TestAnAlertOfEveryRuleOutlivesRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alert := alertOn(w.ours.user, false)
	alert.Rule = 0
	alert = must(w.CreateAlert(t.Context(), tester, alert))(t)
	if err := w.RemoveRule(t.Context(), w.ours.ID, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if kept := must(w.Alert(t.Context(), w.ours.ID, alert.ID))(t); kept != alert || !kept.Active {
		t.Errorf("after a rule was removed the alert is %+v, want %+v", kept, alert)
	}
}

func TestASilencedAlertRecordsAndSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	w.deny(t, w.ours.user, "before", now, 12)
	must(w.raise(ctx, w.ours.ID, now))(t)
	silence := violations.Silence{Until: now.Add(time.Hour), By: tester.Name, Reason: "load test"}
	silenced := must(w.SilenceAlert(ctx, tester, w.ours.ID, alert.ID, rules.Expected(alert.Version), silence))(t)
	if silenced.Silence != silence || silenced.Version != 2 {
		t.Errorf("the alert is %+v", silenced)
	}
	_, err := w.SilenceAlert(ctx, tester, w.ours.ID, alert.ID, rules.Expected(alert.Version), silence)
	wantError(t, err, rules.ErrChanged)
	_, err = w.SilenceAlert(ctx, tester, w.ours.ID, w.theirs.alert.ID, rules.AnyVersion, silence)
	wantError(t, err, rules.ErrNotFound)

	w.deny(t, w.ours.user, "meanwhile", now, 12)
	for range 2 {
		must(w.raise(ctx, w.ours.ID, now.Add(time.Second)))(t)
	}
	target := &receiver{answer: func() (int, error) { return 200, nil }}
	w.deliver(t, target)
	recorded := must(w.AlertDeliveries(ctx, w.ours.ID, alert.ID, 0, 10))(t)
	if len(recorded) != 2 || !recorded[0].Silenced || !recorded[1].Silenced || len(target.posts) > 0 {
		t.Errorf("%d posts; recorded is %+v", len(target.posts), recorded)
	}
	must(w.TestAlert(ctx, w.ours.ID, alert.ID))(t)
	w.deliver(t, target)
	if len(target.posts) != 1 {
		t.Errorf("a test was sent %d times", len(target.posts))
	}

	ended := must(w.SilenceAlert(ctx, tester, w.ours.ID, alert.ID, rules.AnyVersion,
		violations.Silence{Until: now.Add(2 * time.Minute)}))(t)
	if raised := must(w.raise(ctx, w.ours.ID, ended.Silence.Until.Add(time.Second)))(t); raised != 2 {
		t.Errorf("%d deliveries after the silence, want 2", raised)
	}
	log, _, err := w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "alert"}, auth.LogCursor{}, 10)
	if err != nil || len(log) != 3 || log[0].Actor.Act != "silence" {
		t.Errorf("the audit log has %+v, %v", log, err)
	}
}

func TestThePreviewOfABusyTenantIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC().Truncate(time.Minute)
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, $3::timestamptz - make_interval(mins => n % 4000), $2, n::text, false, 1,
			0 FROM generate_series(1, 250000) AS n`,
		w.ours.ID, w.ours.user.ID, now)
	alert := alertOn(w.ours.user, false)
	for _, rule := range []rules.RuleID{w.ours.user.ID, 0} {
		alert.Rule = rule
		counts, since, err := w.AlertCounts(t.Context(), &alert, now.Add(-week), now)
		if err != nil || len(counts) == 0 || !since.After(now.Add(-4000*time.Minute)) ||
			!since.Before(now.Add(-3000*time.Minute)) {
			t.Errorf("rule %d: %d counts since %s, %v", rule, len(counts), since, err)
		}
	}
}
