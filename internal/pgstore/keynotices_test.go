package pgstore_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestKeysOfThoseWhoStayAreNotRead(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	for _, sql := range []string{
		"ALTER TABLE api_key DISABLE TRIGGER USER", "DELETE FROM api_key",
		"INSERT INTO account (email, password_hash) VALUES ('stays@example.com', ''), ('leaves@example.com', '')",
		"INSERT INTO member (tenant_id, account_id, role) SELECT max(tenant_id), (SELECT account_id FROM account " +
			"WHERE email LIKE 'stays%'), 'owner' FROM tenant",
		`INSERT INTO api_key (tenant_id, key_id, name, digest, permissions, revision, created_by_kind, created_by_id,
			created_by_name)
			SELECT (SELECT max(tenant_id) FROM tenant), who || i, 'key', sha256(''), '{check}', 1, 'account',
				(SELECT account_id::text FROM account WHERE starts_with(email, who)), who
			FROM (VALUES ('stays', 20000), ('leaves', 3)) AS v (who, keys), generate_series(1, keys) AS i`,
		"ANALYZE api_key, account, member",
	} {
		exec(t, w.url, sql)
	}
	_, query, _ := strings.Cut(string(must(os.ReadFile("../../db/queries/platform.sql"))(t)),
		"-- name: KeysLeftBehind :many\n")
	query, _, _ = strings.Cut(query, ";")
	query = strings.NewReplacer("sqlc.arg(now)", "now()", "sqlc.arg(at_most)", "100").Replace(query)
	plan := lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query)
	for _, node := range plan {
		if found := regexp.MustCompile(`actual rows=(\d+) loops=(\d+)`).FindStringSubmatch(node); found != nil {
			rows, loops := must(strconv.Atoi(found[1]))(t), must(strconv.Atoi(found[2]))(t)
			if rows*loops > 50 {
				t.Errorf("20,003 keys, and a step reads %d rows:\n%s", rows*loops, strings.Join(plan, "\n"))
			}
		}
	}
	left := must(w.TellOfKeysLeft(t.Context(), time.Now(), false))(t)
	ids := make([]string, 0, len(left))
	for i := range left {
		ids = append(ids, left[i].KeyID)
	}
	slices.Sort(ids)
	if got := strings.Join(ids, " "); got != "leaves1 leaves2 leaves3" {
		t.Errorf("left behind are %q", got)
	}
}
