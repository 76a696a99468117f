package pgstore_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRecordedChecksAreReadByTheirPlace has many blocks of two tenants, in one partition. A page of them, and the
// search for the latest ones, read about as many rows as they need, whatever else the tenant and its neighbour
// recorded.
func TestRecordedChecksAreReadByTheirPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`INSERT INTO traffic_block (tenant_id, day, writer, number, first_at, last_at, stratum, level, checks, seen, left_out, dropped, users, payload)
		SELECT t.tenant_id, '2026-11-02', 'w', n, '2026-11-02'::timestamptz + n * interval '2 seconds',
			'2026-11-02'::timestamptz + n * interval '2 seconds',
			0, 0, 500, 500, 0, 0, ARRAY['user-' || n % 10], decode(repeat('ab', 200), 'hex')
		FROM tenant AS t, generate_series(1, 20000) AS n`)
	exec(t, w.url, "ANALYZE traffic_block")
	text := string(must(os.ReadFile("../../db/queries/traffic.sql"))(t))
	for _, test := range []struct{ name, stratum string }{
		{"TrafficBlocks :many", "0"},
		{"TrafficBlocksAt :many", "0"},
		{"LatestTraffic :one", "0"},
		{"LatestTraffic :one", "9"},
	} {
		name := test.name
		_, query, ok := strings.Cut(text, "-- name: "+name+"\n")
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		query, _, _ = strings.Cut(query, ";")
		query = strings.NewReplacer(
			"sqlc.arg(tenant_id)", fmt.Sprint(w.ours.ID), "sqlc.arg(day)", "date '2026-11-02'", "sqlc.arg(first_day)",
			"date '2026-11-01'", "sqlc.arg(last_day)", "date '2026-11-02'",
			"sqlc.arg(since)", "timestamptz '2026-11-02 01:00'", "sqlc.arg(until)", "timestamptz '2026-11-02 11:00'",
			"sqlc.arg(least_stratum)", test.stratum, "sqlc.arg(most_stratum)", "9",
			"sqlc.arg(days)", "array_fill(date '2026-11-02', ARRAY[3])", "sqlc.arg(writers)", "ARRAY['w', 'w', 'w']",
			"sqlc.arg(numbers)", "ARRAY[7000, 8000, 9000]",
			"sqlc.arg(after_at)", "'2026-11-02 00:55'", "sqlc.arg(begun)", "'2026-11-02 00:55'",
			"sqlc.arg(after_writer)", "''", "sqlc.arg(after_number)", "0",
			"sqlc.arg(page_size)", "16", "sqlc.arg(checks)", "100000", "sqlc.arg(seen)", "1000000000",
			"sqlc.arg(at_most)", "250",
		).Replace(query)
		plan := lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query)
		for _, node := range plan {
			read := 0
			for _, count := range []string{`actual rows=(\d+)`, `Rows Removed by Filter: (\d+)`} {
				if found := regexp.MustCompile(count).FindStringSubmatch(node); found != nil {
					read += must(strconv.Atoi(found[1]))(t)
				}
			}
			if read > 300 {
				t.Errorf("%s: of 40,000 blocks a step reads %d:\n%s", name, read, strings.Join(plan, "\n"))
				break
			}
		}
	}
}
