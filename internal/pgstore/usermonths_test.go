package pgstore_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) countUsers(t *testing.T, number int64, counts ...traffic.UserMonth) {
	t.Helper()
	if err := w.WriteUserMonths(t.Context(), "w", number, counts); err != nil {
		t.Fatal(err)
	}
}

func (w *world) usersOf(t *testing.T, tenant rules.TenantID, month time.Time) (lines []string) {
	t.Helper()
	for after := (*traffic.UserMonth)(nil); ; {
		page := must(w.UserMonths(t.Context(), tenant, month, after, 2))(t)
		for i, c := range page {
			name := strings.TrimRight(c.User+" "+string(c.Meter), " ")
			lines = append(lines, fmt.Sprintf("%s: %d %d %d.%06d", name, c.Allowed, c.Denied, c.Cost, c.CostParts))
			after = &page[i]
		}
		if len(page) < 2 {
			return lines
		}
	}
}

func TestUsersAreCountedOnceByMonthWhileTheirTenantRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.ours.ID, w.theirs.ID
	october, november := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	w.countUsers(t, 1, traffic.UserMonth{Tenant: ours, Month: november, User: "42", Allowed: 1})
	if got := w.usersOf(t, ours, november); got != nil {
		t.Errorf("the tenant does not record, and has %q", got)
	}
	w.recordFor(t, 7)
	for range 2 { // the second time, the answer to the first was lost
		w.countUsers(
			t, 2,
			traffic.UserMonth{Tenant: ours, Month: october, User: "42", Allowed: 9, Cost: 9},
			traffic.UserMonth{Tenant: ours, Month: november, User: "", Allowed: 5, Cost: 5},
			traffic.UserMonth{
				Tenant: ours, Month: november, User: "42", Allowed: 2, Denied: 1, Cost: 1,
				CostParts: 999_999,
			},
			traffic.UserMonth{Tenant: ours, Month: november, User: "7", Allowed: 1, Cost: 1},
			traffic.UserMonth{
				Tenant: ours, Month: november, User: "7", Meter: "usd", Allowed: 1, Cost: 1,
				CostParts: 250_000,
			},
			traffic.UserMonth{Tenant: ours, Month: november, User: "7", Meter: "tokens", CostParts: -1},
			traffic.UserMonth{Tenant: theirs, Month: november, User: "42", Allowed: 100, Cost: 100},
		)
	}
	w.countUsers(t, 3, traffic.UserMonth{Tenant: ours, Month: november, User: "42", Allowed: 1, CostParts: 1},
		traffic.UserMonth{Tenant: ours, Month: november, User: "7", Meter: "usd", Cost: -1, CostParts: -150_000})
	want := []string{
		": 5 0 5.000000", "42: 3 1 2.000000", "7: 1 0 1.000000", "7 tokens: 0 0 0.000000", "7 usd: 1 0 0.100000",
	}
	if got := w.usersOf(t, ours, november); !slices.Equal(got, want) {
		t.Errorf("the users are %q, want %q", got, want)
	}
	months := must(w.MonthsOfUser(t.Context(), ours, "42", []time.Time{october, november}))(t)
	if len(months) != 2 || months[0].Allowed != 9 || !months[0].Month.Equal(october) || months[1].Allowed != 3 {
		t.Errorf("the months of a user are %+v", months)
	}
	erased := w.erase(t, ours, "42")
	if got := w.usersOf(t, ours, november); erased["months"] != 2 || len(got) != 4 {
		t.Errorf("%d counts were erased, want 2; %q remain", erased["months"], got)
	}
	erased = w.erase(t, ours, "7")
	if got := w.usersOf(t, ours, november); erased["months"] != 1 || len(got) != 1 {
		t.Errorf("%d counts with meters were erased, want 1; %q remain", erased["months"], got)
	}
	if got := w.monthUsers(t, november); got != "0 of 0" {
		t.Errorf("then the month has %s users", got)
	}
}

func TestASettlementBringsNoErasedUserBack(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ours, november := w.ours.ID, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	w.recordFor(t, 7)
	check := func(user string) traffic.UserMonth {
		return traffic.UserMonth{Tenant: ours, Month: november, User: user, Allowed: 1, Cost: 9}
	}
	settlement := func(user string, meter rules.Meter) traffic.UserMonth {
		return traffic.UserMonth{Tenant: ours, Month: november, User: user, Meter: meter, Cost: -4}
	}
	w.countUsers(t, 1, check("mallory"), check(`b\ob`))
	if erased := w.erase(t, ours, "mallory"); erased["months"] != 1 {
		t.Errorf("%d months were erased, want 1", erased["months"])
	}
	w.countUsers(t, 2, settlement("mallory", ""), settlement("mallory", "usd"), settlement(`b\ob`, ""),
		settlement(`b\ob`, "usd"))
	want := []string{`b\ob: 1 0 5.000000`, `b\ob usd: 0 0 0.000000`}
	if got := w.usersOf(t, ours, november); !slices.Equal(got, want) {
		t.Errorf("the users are %q, want %q", got, want)
	}
	w.countUsers(t, 3, check("mallory"))
	w.countUsers(t, 4, settlement("mallory", ""))
	if got := w.usersOf(t, ours, november); !slices.Contains(got, "mallory: 1 0 5.000000") {
		t.Errorf("a user who comes again has %q", got)
	}
}

func TestAMonthWithTooManyUsersGetsNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.CountUsersOfMonths(3)
	w.recordFor(t, 1)
	settings := rules.DefaultSettings()
	settings.RecordDays = 1
	other := must(w.CreateTenant(t.Context(), rules.Tenant{Slug: "other", Name: "Other", Settings: settings}))(t)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var many []traffic.UserMonth
	for i := range 5 { // one batch may pass the bound
		many = append(many, traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: fmt.Sprint(i), Allowed: 1})
	}
	w.countUsers(t, 1, many...)
	w.countUsers(
		t, 2,
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "", Allowed: 1},
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "1", Allowed: 1},
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "late", Allowed: 1},
		traffic.UserMonth{Tenant: w.ours.ID, Month: month.AddDate(0, 1, 0), User: "late", Allowed: 1},
		traffic.UserMonth{Tenant: other.ID, Month: month, User: "late", Allowed: 1},
	)
	want := []string{
		": 1 0 0.000000", "0: 1 0 0.000000", "1: 2 0 0.000000", "2: 1 0 0.000000", "3: 1 0 0.000000",
		"4: 1 0 0.000000",
	}
	if got := w.usersOf(t, w.ours.ID, month); !slices.Equal(got, want) {
		t.Errorf("the users are %q, want %q", got, want)
	}
	if n := len(w.usersOf(t, other.ID, month)) + len(w.usersOf(t, w.ours.ID, month.AddDate(0, 1, 0))); n != 2 {
		t.Errorf("%d users of another tenant and month were counted, want 2", n)
	}
}

func TestMonthsAreDroppedWithOtherCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recordFor(t, 1)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	w.countUsers(
		t, 1, traffic.UserMonth{Tenant: w.ours.ID, Month: month.AddDate(0, -4, 0), User: "42", Allowed: 1},
		traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "42", Allowed: 1},
	)
	must(w.KeepViolations(t.Context(), now,
		violations.Retention{Details: 24 * time.Hour, Counts: 60 * 24 * time.Hour}))(t)
	months := must(w.MonthsOfUser(t.Context(), w.ours.ID, "42", []time.Time{month.AddDate(0, -4, 0), month}))(t)
	if len(months) != 1 || !months[0].Month.Equal(month) {
		t.Errorf("the months %+v remain", months)
	}
}

func (w *world) monthUsers(t *testing.T, month time.Time) string {
	t.Helper()
	return strings.Join(lines(t, connect(t, w.url), `SELECT concat(users, ' of ', (SELECT count(*) FROM user_month AS m
		WHERE m.tenant_id = u.tenant_id AND m.month = u.month AND m.user_id <> ''))
		FROM month_users AS u WHERE tenant_id = $1 AND month = $2`, w.ours.ID, month), ", ")
}

func TestTheUsersOfAMonthAreCountedAsTheyCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.CountUsersOfMonths(3)
	w.recordFor(t, 1)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	of := func(user string) traffic.UserMonth {
		return traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: user, Allowed: 1}
	}
	want := func(want string) {
		t.Helper()
		if got := w.monthUsers(t, month); got != want {
			t.Errorf("counted are %q users, want %q", got, want)
		}
	}
	// there was no count
	exec(t, w.url, "INSERT INTO user_month VALUES ($1, $2, 'of before', 1, 0, 1)", w.ours.ID, month)
	// the second time, the answer to the first was lost
	for range 2 {
		w.countUsers(t, 1, of(""), of("42"))
	}
	want("2 of 2")
	w.countUsers(t, 2, of(""), of("42"), of("of before"))
	want("2 of 2")
	w.countUsers(t, 3, of("7"))
	w.countUsers(t, 4, of("8"), of("7")) // 8 comes too late
	want("3 of 3")
	w.erase(t, w.ours.ID, "42")
	want("2 of 2")
	w.countUsers(t, 5, of("8"))
	want("3 of 3")
	w.erase(t, w.ours.ID, "nobody")
	want("3 of 3")
}

func TestProcessesTogetherCountTheUsersOfAMonth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recordFor(t, 1)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var processes sync.WaitGroup
	for process := range 4 {
		processes.Go(func() {
			for batch := range 5 {
				var counts []traffic.UserMonth
				for user := range 20 { // each user comes by two processes
					counts = append(counts, traffic.UserMonth{
						Tenant: w.ours.ID, Month: month,
						User: fmt.Sprintf("%d-%d-%02d", process/2, batch, user), Allowed: 1,
					})
				}
				if err := w.WriteUserMonths(t.Context(), fmt.Sprint("process ", process), int64(batch),
					counts); err != nil {
					t.Error(err)
				}
			}
		})
	}
	processes.Wait()
	if got := w.monthUsers(t, month); got != "200 of 200" {
		t.Errorf("counted are %s users, want 200 of 200", got)
	}
}

// All tenants' counts wait meanwhile.
func TestErasingAMonthReadsTheUserOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url, `INSERT INTO user_month
		SELECT $1, month, 'user-' || i, 1, 0, 1
		FROM generate_series(1, 20000) AS i, unnest('{2026-10-01,2026-11-01}'::date[]) AS month`, w.ours.ID)
	exec(t, w.url, "INSERT INTO month_users VALUES ($1, '2026-10-01', 20000), ($1, '2026-11-01', 20000)", w.ours.ID)
	exec(t, w.url, "ANALYZE user_month, month_users")
	_, query, _ := strings.Cut(string(must(os.ReadFile("../../db/queries/user_month.sql"))(t)),
		"-- name: EraseUserMonths :one\n")
	query, _, _ = strings.Cut(query, ";")
	query = strings.NewReplacer("sqlc.arg(tenant_id)", fmt.Sprint(w.ours.ID), "sqlc.arg(user_id)", "'user-7'").
		Replace(query)
	plan := strings.Join(lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) "+query), "\n")
	found := regexp.MustCompile(`shared hit=(\d+)( read=(\d+))?`).FindStringSubmatch(plan)
	if found == nil {
		t.Fatalf("no buffers in\n%s", plan)
	}
	hit, read := must(strconv.Atoi(found[1]))(t), 0
	if found[3] != "" {
		read = must(strconv.Atoi(found[3]))(t)
	}
	if hit+read > 60 {
		t.Errorf("%d pages are read, want those of one user:\n%s", hit+read, plan)
	}
}

func TestABatchOfCountsReadsItsUsersOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recordFor(t, 1)
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	exec(t, w.url, "INSERT INTO user_month SELECT $1, $2, 'user-' || i, 1, 0, 1 FROM generate_series(1, 20000) AS i",
		w.ours.ID, month)
	// counts all once
	w.countUsers(t, 1, traffic.UserMonth{Tenant: w.ours.ID, Month: month, User: "user-1", Allowed: 1})
	exec(t, w.url, "ANALYZE user_month, month_users, tenant")
	for _, name := range []string{"BeginMonthUsers", "CountUserMonths"} {
		_, query, ok := strings.Cut(string(must(os.ReadFile("../../db/queries/platform.sql"))(t)),
			"-- name: "+name+" :exec\n")
		if !ok {
			t.Fatalf("there is no %s", name)
		}
		query, _, _ = strings.Cut(query, ";")
		tenant := fmt.Sprint(w.ours.ID)
		query = strings.NewReplacer(
			"sqlc.arg(tenant_ids)", "'{"+tenant+","+tenant+"}'", "sqlc.arg(months)", "'{2026-11-01,2026-11-01}'",
			"sqlc.arg(user_ids)", "'{user-2,new}'", "sqlc.arg(meters)", "'{\"\",\"\"}'",
			"sqlc.arg(allowed)", "'{1,1}'", "sqlc.arg(denied)", "'{0,0}'", "sqlc.arg(cost)", "'{1,1}'",
			"sqlc.arg(cost_parts)", "'{0,0}'",
			"sqlc.arg(at_most)", "100000",
		).Replace(query)
		plan := lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query)
		for _, node := range plan {
			if found := regexp.MustCompile(`actual rows=(\d+) loops=(\d+)`).FindStringSubmatch(node); found != nil {
				rows, loops := must(strconv.Atoi(found[1]))(t), must(strconv.Atoi(found[2]))(t)
				if rows*loops > 50 {
					t.Errorf("%s: 20,000 users, and a step reads %d rows:\n%s", name, rows*loops,
						strings.Join(plan, "\n"))
				}
			}
		}
	}
	if got := w.monthUsers(t, month); got != "20001 of 20001" {
		t.Errorf("counted are %s users", got)
	}
}
