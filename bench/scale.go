package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Many tenants are written by SQL: it takes seconds where the admin commands would take hours. Their
// keys are slk_k<n>_secret<n>.
const (
	insertTenants  = `INSERT INTO tenant (slug, name) SELECT 't' || n, 'T' FROM generate_series(1, $1::int) AS n`
	insertCapacity = `INSERT INTO tenant_capacity (tenant_id, rules, users, api_keys)
		SELECT tenant_id, 1e9, 1e9, 1e9 FROM tenant`
	insertPlans = `INSERT INTO plan (tenant_id, name, revision) SELECT tenant_id, 'free', 1 FROM tenant`
	insertKeys  = `INSERT INTO api_key (tenant_id, key_id, name, digest, permissions, revision,
			created_by_kind, created_by_id, created_by_name)
		SELECT tenant_id, 'k' || n, 'bench', sha256(convert_to('secret' || n, 'UTF8')), '{check}', 1, '', '', ''
		FROM generate_series(1, $1::int) AS n JOIN tenant ON tenant.slug = 't' || (1 + (n - 1) % $2::int)`
	// The first four match every check of checkBody; the others are of the same kinds and match none.
	insertRules = `INSERT INTO rate_limit_rule (tenant_id, key_pattern, scope, rate_per_second, rate_unit,
			burst_capacity, algorithm, mode, action, is_active, in_force_since, revision)
		SELECT tenant_id, key_pattern, split_part(key_pattern, ':', 1), 1000000, 'second', 1000000,
			'token_bucket', 'enforce', 'limit', true, now(), 1
		FROM tenant, generate_series(1, $1::int) AS n, LATERAL (SELECT CASE
			WHEN n = 1 THEN 'user:{user_id}' WHEN n = 2 THEN 'endpoint:{endpoint}' WHEN n = 3 THEN 'global'
			WHEN n = 4 THEN 'ip:{ip}'
			WHEN n % 4 = 0 THEN 'user:someone-' || n
			WHEN n % 4 = 1 THEN 'ip:192.168.' || n || '.0/24'
			WHEN n % 4 = 2 THEN 'user:{user_id}:endpoint:/other/' || n
			ELSE 'endpoint:POST /v' || n || '/*' END) AS p (key_pattern)`
	insertAssignments = `INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
		SELECT tenant_id, 'user-' || n, 'free', 1
		FROM generate_series(1, $1::int) AS n JOIN tenant ON tenant.slug = 't' || (1 + n % $2::int)`
)

type population struct{ tenants, rulesEach, keys, assignments int }

func (s *stage) populate(ctx context.Context, name string, p population) (database string, err error) {
	if database, err = s.database(ctx, name); err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return "", fmt.Errorf("fill the database: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{insertTenants, []any{p.tenants}},
		{insertCapacity, nil},
		{insertPlans, nil},
		{insertKeys, []any{p.keys, p.tenants}},
		{insertRules, []any{p.rulesEach}},
		{insertAssignments, []any{p.assignments, p.tenants}},
		{"ANALYZE", nil},
	} {
		if _, err := conn.Exec(ctx, step.sql, step.args...); err != nil {
			return "", fmt.Errorf("fill the database: %w", err)
		}
	}
	return database, nil
}

// crowdOf is single checks by the users of some tenants in turn.
func crowdOf(tenants int) [][]byte {
	requests := make([][]byte, 20_000)
	for i := range requests {
		n := 1 + i%tenants
		requests[i] = singleCheck(fmt.Sprintf("slk_k%d_secret%d", n, n), i).bytes()
	}
	return requests
}

// manyTenants compares the throughput with 100,000 rules in 1,000 tenants, which ask in turn, with that
// of ten rules in one. Buckets are in memory: on Redis the checks of one tenant have buckets in common, which
// a script reads and writes once, and those of a thousand have none, however many rules there are.
func manyTenants(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		sides := []*contender{{name: "few rules", checks: 1}, {name: "many rules", checks: 1}}
		onRedis := []*contender{{name: "one tenant on Redis", checks: 1}, {name: "many tenants on Redis", checks: 1}}
		for i, p := range []population{{1, 10, 1, 0}, {1000, 100, 1000, 0}} {
			database, err := f.populate(ctx, fmt.Sprint("rules_", i), p)
			if err != nil {
				return nil, err
			}
			for redisURL, side := range map[string]*contender{"": sides[i], f.redis.URL(): onRedis[i]} {
				if side.server, err = f.startAPI(ctx, database, redisURL); err != nil {
					return nil, err
				}
				side.requests = crowdOf(p.tenants)
			}
		}
		if err := f.race(ctx, rounds, round, connections, sides[0], sides[1], onRedis[0], onRedis[1]); err != nil {
			return nil, err
		}
		return []line{
			versus("100,000 rules in 1,000 tenants ÷ 10 rules in one, checks/s", sides[0], sides[1], 0.95),
			versus("  on Redis, where tenants have no buckets in common", onRedis[0], onRedis[1], 0),
		}, nil
	})
}

// residentMemory is that of an api process with many rules, keys and assignments, which has read all of
// them several times.
func residentMemory(ctx context.Context, _ int, _ time.Duration) ([]line, error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	database, err := s.populate(ctx, "memory", population{1000, 100, 100_000, 1_000_000})
	if err != nil {
		return nil, err
	}
	p, err := s.startAPI(ctx, database, "", "SLUICE_REREAD_INTERVAL=5s")
	if err != nil {
		return nil, err
	}
	var most int64
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < 25*time.Second; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		now, err := p.resident()
		if err != nil {
			return nil, err
		}
		most = max(most, now)
	}
	l := line{
		what: "resident memory, 100,000 rules, 100,000 keys, 1 M assignments, MB", ours: fmt.Sprint(most >> 20),
		target: "at most 600", met: yesNo(most>>20 <= 600),
	}
	return []line{l}, nil
}
