package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func everything() *Metrics {
	m := New("v1.2.3", "abc")
	m.Decisions("redis")
	m.Requests("check").RequestAnswered("/v1/check", http.StatusOK, time.Millisecond, "")
	m.Requests("admin").RequestAnswered("/api/v1/session", http.StatusOK, time.Millisecond, "")
	m.Snapshot(
		func() snapshot.Sizes {
			return snapshot.Sizes{
				Tenants: 1, TenantsInShadow: 1, Rules: 2, Overrides: 3, Assignments: 4, Keys: 5,
				UnknownRules: 18,
			}
		},
		func() time.Duration { return 1500 * time.Millisecond },
	)
	m.SnapshotReads(
		func() time.Duration { return 2 * time.Millisecond },
		func() time.Duration { return 3 * time.Second },
	)
	m.UnreadableRules(func() int64 { return 9 })
	m.SharedStore(func() map[string]Breaker {
		return map[string]Breaker{
			"10.0.0.1:6379": {State: BreakerClosed},
			"10.0.0.2:6379": {State: BreakerOpen, Trips: 3},
		}
	}, func() int64 { return 6 }, func() int64 { return 16 }, func() int64 { return 21 })
	m.UnsettledEdits(func() int64 { return 17 })
	m.Adapting(adapt.NewReports(nil, nil), adapt.NewLoop(nil, nil, nil))
	m.LocalBuckets(func() int { return 7 }, func() int64 { return 8 })
	m.Checkpoints(func() int64 { return 60 }, func() int { return 61 }, func() int64 { return 62 })
	m.Leases(func() Leases {
		return Leases{Buckets: 3, Served: 21, Split: 22, Lent: 2.5, Spent: 1, GivenBack: 0.5, Forfeited: 0.25}
	})
	m.Lessor(func() enforce.LessorStats {
		const token = int64(enforce.Token)
		return enforce.LessorStats{
			Lent: 5 * token, Spent: 3 * token / 2, Returned: token, Allowed: 31, Denied: 32,
			Unplaced: 33, Lessees: 34,
		}
	})
	m.Traffic(func() traffic.Stats {
		return traffic.Stats{
			Recorded: 41, Dropped: 42, Lost: 43, Bytes: 44, Stored: 45, Sampled: 46, Stopped: 47,
			LostUsers: 52, DroppedCounts: 54,
		}
	})
	m.RefusedScripts(func() int64 { return 53 })
	m.Mail(func() (sent, failed int64) { return 48, 49 })
	m.Jobs(func() (parked, failed int64) { return 50, 51 })
	m.PeriodicJob("keep violations", func() time.Duration { return 52 * time.Second })
	m.AccountChanges()()
	m.GatewayGaps([]string{"no_address", "no_rule"})("no_address")
	m.Capacity(func() map[rules.Thing]rules.CapacityUse {
		return map[rules.Thing]rules.CapacityUse{rules.ThingRules: {Near: 50, Full: 51}}
	}).Refused(rules.ThingKeys)
	queue := m.StoreQueue(func() int { return 13 })
	queue.Shed(3, true)
	queue.Waited(time.Millisecond)
	queue.ScriptSent(3)
	m.Tenants()
	m.Violations()
	m.Recorder(func() violations.Stats { return violations.Stats{} })
	m.Certificate("check", func() time.Time { return time.Unix(1_800_000_000, 0) })
	m.CheckConnections(16384, func() Connections { return Connections{Open: 10, Refused: 11, Evicted: 12} })
	m.GRPCConnections(4096, func() Connections { return Connections{Open: 21, Evicted: 22} })
	m.AdminRequests("light", func() Slots { return Slots{Held: 18, Waiting: 19, Refused: 20} })
	m.AdminRequests("heavy", func() Slots { return Slots{Refused: 21} })
	m.AdminDenied("tenant", func() int64 { return 22 })
	return m
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("GET /metrics: %d %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func TestMetricsArePublishedUnderTheirNames(t *testing.T) {
	t.Parallel()
	page := scrape(t, everything())
	for _, line := range []string{
		`sluice_snapshot_age_seconds 1.5`,
		`sluice_grpc_connections 21`,
		`sluice_grpc_connections_limit 4096`,
		`sluice_grpc_connections_evicted_total 22`,
		`sluice_snapshot_tenants 1`,
		`sluice_snapshot_tenants_in_shadow 1`,
		`sluice_snapshot_rules 2`,
		`sluice_snapshot_overrides 3`,
		`sluice_snapshot_assignments 4`,
		`sluice_snapshot_keys 5`,
		`sluice_snapshot_read_duration_seconds{kind="poll"} 0.002`,
		`sluice_snapshot_read_duration_seconds{kind="reread"} 3`,
		`sluice_unreadable_rules_total 9`,
		`sluice_store_breaker_state 2`,
		`sluice_store_node_breaker_state{node="10.0.0.1:6379"} 0`,
		`sluice_store_node_breaker_state{node="10.0.0.2:6379"} 2`,
		`sluice_bucket_states_reset_total 6`,
		`sluice_bucket_states_unknown_total 16`,
		`sluice_store_refused_scripts_total 53`,
		`sluice_unsettled_edits_total 17`,
		`sluice_snapshot_unknown_rules 18`,
		`sluice_local_buckets 7`,
		`sluice_local_bucket_evictions_total 8`,
		`sluice_leased_buckets 3`,
		`sluice_leased_checks_total 21`,
		`sluice_split_checks_total 22`,
		`sluice_leased_tokens_total{fate="lent"} 2.5`,
		`sluice_leased_tokens_total{fate="spent"} 1`,
		`sluice_leased_tokens_total{fate="given_back"} 0.5`,
		`sluice_leased_tokens_total{fate="forfeited"} 0.25`,
		`sluice_lessees 34`,
		`sluice_lessee_tokens_lent_total 5`,
		`sluice_lessee_tokens_spent_total 1.5`,
		`sluice_lessee_tokens_returned_total 1`,
		`sluice_lessee_allowed_total 31`,
		`sluice_lessee_denied_total 32`,
		`sluice_lessee_denials_unplaced_total 33`,
		`sluice_traffic_checks_total 41`,
		`sluice_traffic_dropped_total 42`,
		`sluice_traffic_lost_total 43`,
		`sluice_traffic_lost_users_total 52`,
		`sluice_traffic_dropped_counts_total 54`,
		`sluice_traffic_bytes 44`,
		`sluice_traffic_stored_bytes 45`,
		`sluice_traffic_sampled_tenants 46`,
		`sluice_traffic_stopped_tenants 47`,
		`sluice_mail_attempts_total{result="sent"} 48`,
		`sluice_mail_attempts_total{result="failed"} 49`,
		`sluice_account_changes_unfinished_total 1`,
		`sluice_gateway_gaps_total{gap="no_address"} 1`,
		`sluice_gateway_gaps_total{gap="no_rule"} 0`,
		`sluice_store_node_breaker_trips_total{node="10.0.0.2:6379"} 3`,
		`sluice_store_queue_depth 13`,
		`sluice_store_queue_wait_seconds_count 1`,
		`sluice_store_shed_checks_total{when="at_once"} 3`,
		`sluice_store_shed_checks_total{when="waited"} 0`,
		`sluice_store_checks_per_script_bucket{le="2"} 0`,
		`sluice_store_checks_per_script_bucket{le="4"} 1`,
		`sluice_certificate_expires_seconds{listener="check"} 1.8e+09`,
		`sluice_check_connections_limit 16384`,
		`sluice_check_connections 10`,
		`sluice_check_connections_refused_total 11`,
		`sluice_check_connections_evicted_total 12`,
		`sluice_admin_requests_running{class="light"} 18`,
		`sluice_admin_requests_waiting{class="light"} 19`,
		`sluice_admin_requests_refused_total{class="light"} 20`,
		`sluice_admin_requests_refused_total{class="heavy"} 21`,
		`sluice_admin_denied_total{class="tenant"} 22`,
		`sluice_check_requests_total{route="/v1/check",status="200"} 1`,
		`sluice_admin_requests_total{route="/api/v1/session",status="200"} 1`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
	for _, start := range []string{
		`sluice_build_info{goversion="go1.`, "go_goroutines ", "process_start_time_seconds ",
	} {
		if !strings.Contains(page, "\n"+start) {
			t.Errorf("the page lacks %s…", start)
		}
	}
}

func TestNamesFollowPrometheusPractice(t *testing.T) {
	t.Parallel()
	problems, err := testutil.GatherAndLint(everything().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestTwoMetricsInOneProcessShareNothing(t *testing.T) {
	t.Parallel()
	one, other := New("v1", "abc"), New("v1", "abc")
	one.Requests("check").RequestAnswered("/v1/check", http.StatusOK, time.Millisecond, "")
	other.Requests("check")
	assertMetric(t, one, "sluice_check_requests_total", "route=/v1/check status=200")
	assertMetric(t, other, "sluice_check_requests_total")
}

func TestNodesThatFailAreShownAndTheirNumberIsBounded(t *testing.T) {
	t.Parallel()
	breakers := map[string]Breaker{}
	for i := range 2 * maxNodes {
		breakers[fmt.Sprint("10.0.0.1:", i)] = Breaker{State: BreakerClosed}
	}
	breakers["10.0.0.1:9999"] = Breaker{State: BreakerOpen}
	m := New("v1", "abc")
	m.SharedStore(func() map[string]Breaker { return breakers }, func() int64 { return 0 }, func() int64 { return 0 },
		func() int64 { return 0 })
	page := scrape(t, m)
	if got := strings.Count(page, "sluice_store_node_breaker_state{"); got != maxNodes {
		t.Errorf("%d nodes have series, want %d", got, maxNodes)
	}
	if !strings.Contains(page, `sluice_store_node_breaker_state{node="10.0.0.1:9999"} 2`) {
		t.Error("the node that fails is not shown")
	}
}
