package pgstore_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A page of blocks, and the search for the latest ones, read about as many rows as they need, whatever else was
// recorded.
func TestRecordedChecksAreReadByTheirPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url,
		`INSERT INTO traffic_block (tenant_id, day, writer, number, first_at, last_at, stratum, level, checks, seen,
			left_out, dropped, users, payload)
		SELECT t.tenant_id, '2026-11-02', 'w', n, '2026-11-02'::timestamptz + n * interval '2 seconds',
			'2026-11-02'::timestamptz + n * interval '2 seconds',
			0, 0, 500, 500, 0, 0, ARRAY['user-' || n % 10], decode(repeat('ab', 200), 'hex')
		FROM tenant AS t, generate_series(1, 20000) AS n`)
	exec(t, w.url, "ANALYZE traffic_block")
	for _, test := range []struct{ name, stratum string }{
		{"TrafficBlocks :many", "0"},
		{"TrafficBlocksAt :many", "0"},
		{"LatestTraffic :one", "0"},
		{"LatestTraffic :one", "9"},
	} {
		query := queryOf(t, "traffic.sql", test.name, map[string]string{
			"tenant_id": fmt.Sprint(w.ours.ID), "day": "date '2026-11-02'", "first_day": "date '2026-11-01'",
			"last_day": "date '2026-11-02'",
			"since":    "timestamptz '2026-11-02 01:00'", "until": "timestamptz '2026-11-02 11:00'",
			"least_stratum": test.stratum, "most_stratum": "9",
			"days": "array_fill(date '2026-11-02', ARRAY[3])", "writers": "ARRAY['w', 'w', 'w']",
			"numbers":  "ARRAY[7000, 8000, 9000]",
			"after_at": "'2026-11-02 00:55'", "begun": "'2026-11-02 00:55'",
			"after_writer": "''", "after_number": "0",
			"page_size": "16", "checks": "100000", "seen": "1000000000",
			"at_most": "250",
		})
		notMoreThan(t, lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query), 300)
	}
}

func queryOf(t *testing.T, file, name string, params map[string]string) string {
	t.Helper()
	text := string(must(os.ReadFile("../../db/queries/" + file))(t))
	_, query, ok := strings.Cut(text, "-- name: "+name+"\n")
	if !ok {
		t.Fatalf("%s has no %s", file, name)
	}
	query = regexp.MustCompile(`;( --.*)?\n`).Split(query, 2)[0]
	for param, value := range params {
		query = strings.ReplaceAll(query, "sqlc.arg("+param+")", value)
	}
	return query
}

func notMoreThan(t *testing.T, plan []string, most int) {
	t.Helper()
	for _, node := range plan {
		read := 0
		for _, count := range []string{`actual rows=(\d+)`, `Rows Removed by Filter: (\d+)`} {
			if found := regexp.MustCompile(count).FindStringSubmatch(node); found != nil {
				read += must(strconv.Atoi(found[1]))(t)
			}
		}
		if read > most {
			t.Errorf("a step reads %d rows, want %d at most:\n%s", read, most, strings.Join(plan, "\n"))
			return
		}
	}
}
