package checks

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// series are scraped once a minute from minute 0, in promtool's notation: `name{label="x"} 0+60x30`.
type series []string

// alerts has, for each alert, series that make it fire and series that do not, after an hour.
var alerts = map[string]struct{ fires, quiet series }{
	"SluiceDown": {
		series{`up{job="sluice-api"} 1x50 0x10`},
		series{`up{job="sluice-api"} 1x58 0x2`, `up{job="other"} 0x60`},
	},
	"SluiceRulesOld": {series{`sluice_snapshot_age_seconds 90x60`}, series{`sluice_snapshot_age_seconds 2x60`}},
	"SluiceRedisUnavailable": {
		series{`sluice_store_node_breaker_state{node="a"} 2x60`},
		series{`sluice_store_node_breaker_state{node="a"} 0x59 2`},
	},
	"SluiceDegraded": {
		series{
			`sluice_degraded_decisions_total{failure_mode="local"} 0+60x60`,
			`sluice_checks_total{outcome="allowed"} 0+600x60`,
		},
		series{
			`sluice_degraded_decisions_total{failure_mode="local"} 0+1x60`,
			`sluice_checks_total{outcome="allowed"} 0+600x60`,
		},
	},
	"SluiceBreakerFlaps": {
		series{`sluice_store_node_breaker_trips_total{node="a"} 0+1x60`},
		series{`sluice_store_node_breaker_trips_total{node="a"} 0x50 2x10`},
	},
	"SluiceChecksSlow": {
		series{
			`sluice_check_duration_seconds_bucket{route="/v1/check",le="0.025"} 0+50x60`,
			`sluice_check_duration_seconds_bucket{route="/v1/check",le="0.05"} 0+60x60`,
			`sluice_check_duration_seconds_bucket{route="/v1/check",le="+Inf"} 0+60x60`,
		},
		series{
			`sluice_check_duration_seconds_bucket{route="/v1/check",le="0.025"} 0+60x60`,
			`sluice_check_duration_seconds_bucket{route="/v1/check",le="0.05"} 0+60x60`,
			`sluice_check_duration_seconds_bucket{route="/v1/check",le="+Inf"} 0+60x60`,
		},
	},
	"SluiceRedisQueue": {
		series{
			`sluice_store_queue_wait_seconds_bucket{le="0.01"} 0+50x60`,
			`sluice_store_queue_wait_seconds_bucket{le="0.025"} 0+60x60`,
			`sluice_store_queue_wait_seconds_bucket{le="+Inf"} 0+60x60`,
		},
		series{
			`sluice_store_queue_wait_seconds_bucket{le="0.001"} 0+60x60`,
			`sluice_store_queue_wait_seconds_bucket{le="0.025"} 0+60x60`,
			`sluice_store_queue_wait_seconds_bucket{le="+Inf"} 0+60x60`,
		},
	},
	"SluiceConnectionsFull": {
		series{
			`sluice_check_connections 16000x60`,
			`sluice_check_connections_limit 16384x60`,
		},
		series{`sluice_check_connections 9000x60`, `sluice_check_connections_limit 16384x60`},
	},
	"SluiceConnectionsRefused": {
		series{`sluice_check_connections_refused_total 0x58 7x2`},
		series{`sluice_check_connections_refused_total 7x60`},
	},
	"SluiceViolationsNotWritten": {
		series{`sluice_recorder_lag_seconds 90x60`},
		series{`sluice_recorder_lag_seconds 3x60`},
	},
	"SluiceViolationsLost": {
		series{`sluice_recorder_counts_lost_total 0x55 2x5`},
		series{`sluice_recorder_counts_lost_total 2x60`},
	},
	"SluiceUnreadableRules": {
		series{`sluice_snapshot_unknown_rules 1x60`, `sluice_unreadable_rules_total 0x60`},
		series{`sluice_snapshot_unknown_rules 0x60`, `sluice_unreadable_rules_total 3x60`},
	},
	"SluiceTenantInShadow": {
		series{`sluice_snapshot_tenants_in_shadow 1x60`},
		series{`sluice_snapshot_tenants_in_shadow 0x30 1x30`},
	},
	"SluiceTenantDenied": {
		series{
			`sluice_tenant_checks_total{tenant="a",outcome="denied"} 0+600x60`,
			`sluice_tenant_checks_total{tenant="a",outcome="allowed"} 0+60x60`,
		},
		series{
			`sluice_tenant_checks_total{tenant="a",outcome="denied"} 0+60x60`,
			`sluice_tenant_checks_total{tenant="a",outcome="allowed"} 0+600x60`,
			`sluice_tenant_checks_total{tenant="tiny",outcome="denied"} 0+1x60`,
			`sluice_tenant_checks_total{tenant="tiny",outcome="allowed"} 0x60`,
		},
	},
	"SluiceBucketsReset": {
		series{`sluice_bucket_states_reset_total 0x55 1x5`},
		series{`sluice_bucket_states_reset_total 1x60`},
	},
	"SluiceRateLowered": {
		series{`sluice_adapt_share_percent{tenant="acme",rule="7"} 20x60`},
		series{`sluice_adapt_share_percent{tenant="acme",rule="7"} 60x60`},
	},
	"SluiceCertificateExpires": {
		series{`sluice_certificate_expires_seconds{listener="check"} 100000x60`},
		series{`sluice_certificate_expires_seconds{listener="check"} 9000000x60`},
	},
	"SluiceAdminRefuses": {
		series{`sluice_admin_requests_refused_total{class="heavy"} 0+600x60`},
		series{`sluice_admin_requests_refused_total{class="heavy"} 0+1x60`},
	},
	"SluiceAdminRateLimited": {
		series{`sluice_admin_denied_total{class="account"} 0+60x60`},
		series{`sluice_admin_denied_total{class="account"} 0+6x60`},
	},
	"SluiceCapacityRefuses": {
		series{`sluice_capacity_refusals_total{thing="rules"} 0+1x60`},
		series{`sluice_capacity_refusals_total{thing="rules"} 0x50 1+1x5 6x5`},
	},
	"SluicePeriodicJobLate": {
		series{
			`sluice_periodic_job_lag_seconds{instance="a",kind="keep violations"} 9000+60x60`,
			`sluice_periodic_job_lag_seconds{instance="b",kind="keep violations"} 9000+60x60`,
		},
		series{
			`sluice_periodic_job_lag_seconds{kind="keep violations"} 0+60x60`,
			`sluice_periodic_job_lag_seconds{kind="keep sessions"} 12000x50 0x10`,
		},
	},
	"SluiceMailNotSent": {
		series{`sluice_mail_attempts_total{result="failed"} 0+1x60`, `sluice_mail_attempts_total{result="sent"} 3x60`},
		series{
			`sluice_mail_attempts_total{result="failed"} 0+1x60`,
			`sluice_mail_attempts_total{result="sent"} 0+1x60`,
		},
	},
	"SluiceRecordingStopped": {
		series{`sluice_traffic_stopped_tenants 2x60`},
		series{`sluice_traffic_stopped_tenants 0x50 1x10`},
	},
	"SluiceRecordedChecksLost": {
		series{`sluice_traffic_lost_total 0x60`, `sluice_traffic_dropped_total 0+500x60`},
		series{`sluice_traffic_lost_total 7x60`, `sluice_traffic_dropped_total 0x60`},
	},
	"SluiceLeasesForfeited": {
		series{
			`sluice_leased_tokens_total{fate="lent"} 0+6000x60`,
			`sluice_leased_tokens_total{fate="forfeited"} 0+3000x60`,
		},
		series{
			`sluice_leased_tokens_total{instance="a",fate="lent"} 0+6000x60`,
			`sluice_leased_tokens_total{instance="a",fate="forfeited"} 0+60x60`,
			`sluice_leased_tokens_total{instance="idle",fate="lent"} 0+6x60`,
			`sluice_leased_tokens_total{instance="idle",fate="forfeited"} 0+6x60`,
		},
	},
}

var queries = parser.NewParser(parser.Options{})

func TestEachAlertFiresWhenItShouldAndOnlyThen(t *testing.T) {
	t.Parallel()
	groups, errs := rulefmt.ParseFile("../chart/files/alerts.yaml", false, model.UTF8Validation, queries,
		slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	tested := 0
	for _, rule := range groups.Groups[0].Rules {
		test, ok := alerts[rule.Alert]
		if !ok {
			t.Errorf("nothing says when %s fires", rule.Alert)
			continue
		}
		tested++
		if !firing(t, engine, rule, test.fires) {
			t.Errorf("%s does not fire", rule.Alert)
		}
		if firing(t, engine, rule, test.quiet) {
			t.Errorf("%s fires by the series of a quiet day", rule.Alert)
		}
	}
	if tested != len(alerts) {
		t.Errorf("%d alerts exist of the %d with series", tested, len(alerts))
	}
}

func firing(t *testing.T, engine *promql.Engine, rule rulefmt.Rule, s series) bool {
	t.Helper()
	scraped := load(t, s)
	pending := map[string]int{}
	steps := 0
	for at := time.Hour; at >= time.Hour-time.Duration(rule.For); at -= time.Minute {
		steps++
		query, err := engine.NewInstantQuery(t.Context(), scraped, nil, rule.Expr, time.Unix(0, 0).Add(at))
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		for _, sample := range vector {
			pending[sample.Metric.String()]++
		}
		query.Close()
	}
	for _, n := range pending {
		if n == steps {
			return true
		}
	}
	return false
}

type scraped []*storage.SeriesEntry

func load(t *testing.T, s series) scraped {
	t.Helper()
	var all scraped
	for _, line := range s {
		name, values, err := queries.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			samples = append(samples, sample{int64(i) * time.Minute.Milliseconds(), v.Value})
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	return all
}

func (s scraped) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints,
		matchers ...*labels.Matcher,
	) storage.SeriesSet {
		var found scraped
		for _, one := range s {
			matches := true
			for _, m := range matchers {
				matches = matches && m.Matches(one.Lset.Get(m.Name))
			}
			if matches {
				found = append(found, one)
			}
		}
		return &set{found, -1}
	}}, nil
}

type set struct {
	scraped
	at int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.scraped) }
func (s *set) At() storage.Series                { return s.scraped[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func TestDashboardsAskWhatPrometheusUnderstands(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../chart/files/dashboards/*.json")
	if err != nil || len(files) != 3 {
		t.Fatalf("there are the dashboards %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard struct {
			UID    string
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatal(err)
		}
		if dashboard.UID+".json" != filepath.Base(file) || len(dashboard.Panels) < 5 {
			t.Errorf("%s has uid %s and %d panels", file, dashboard.UID, len(dashboard.Panels))
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$tenant", ".*").Replace(target.Expr)
				if _, err := queries.ParseExpr(expr); err != nil || target.Expr == "" {
					t.Errorf("%s, %s: %v", file, panel.Title, err)
				}
			}
		}
	}
}
