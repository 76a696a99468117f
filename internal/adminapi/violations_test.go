package adminapi_test

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func lately() time.Time { return time.Now().UTC().Truncate(time.Minute).Add(-15 * time.Minute) }

func denied(tenant rules.Tenant, at time.Time, change ...func(*violations.Violation)) violations.Violation {
	v := violations.Violation{
		ID: violations.ID{At: at.UTC().Truncate(time.Microsecond)}, Tenant: tenant.ID, Rule: 12, Subject: "42",
		Reason: "limit_exceeded", Scope: rules.ScopeUser, Mode: rules.ModeEnforce, Pattern: "user:{user_id}",
		Version: 3,
		Rate:    10, Burst: 50, UserID: "42", IP: netip.MustParseAddr("203.0.113.9"), Endpoint: "/api/search",
		Method: "GET",
		Plan:   "free", Cost: violations.Token, Tokens: 650_000, TokensKnown: true, RetryAfter: 35 * time.Millisecond,
		Count: 1,
	}
	for _, f := range change {
		f(&v)
	}
	v.LastAt = v.ID.At
	return v
}

func (w *world) violate(all ...violations.Violation) []violations.Violation {
	w.t.Helper()
	batch := &violations.Batch{Writer: w.name("writer"), Number: 1}
	for i := range all {
		v := &all[i]
		batch.Tallies = append(batch.Tallies, violations.Tally{
			Tenant: v.Tenant, Rule: v.Rule, Minute: v.ID.At.Truncate(time.Minute), Subject: v.Subject, Denied: v.Count,
			Details: []*violations.Violation{v},
		})
		for dimension, value := range map[violations.Dimension]string{
			violations.ByUser: v.UserID, violations.ByIP: v.IP.String(), violations.ByEndpoint: v.Endpoint,
			violations.ByNetwork: rules.SiteNetwork(v.IP).String(),
		} {
			batch.Recent = append(batch.Recent, violations.RecentDenials{
				Tenant: v.Tenant, Dimension: dimension, Slot: v.ID.At.Truncate(violations.SlotLength), Rule: v.Rule,
				Mode: v.Mode, Value: value, Denied: v.Count,
			})
		}
	}
	if err := w.store.WriteViolations(w.ctx(), mergeTallies(batch)); err != nil {
		w.t.Fatal(err)
	}
	for i := range all {
		filter := violations.Filter{Since: all[i].ID.At, Until: all[i].ID.At.Add(time.Microsecond)}
		page := must(w.store.Violations(w.ctx(), all[i].Tenant, &filter, violations.ID{}, 1))(w.t)
		if len(page.Violations) > 0 {
			all[i].ID = page.Violations[0].ID
		}
	}
	return all
}

func mergeTallies(b *violations.Batch) *violations.Batch {
	merged := b.Tallies[:0]
	for _, t := range b.Tallies {
		i := slices.IndexFunc(merged, func(m violations.Tally) bool {
			return m.Tenant == t.Tenant && m.Rule == t.Rule && m.Subject == t.Subject && m.Minute.Equal(t.Minute)
		})
		if i < 0 {
			merged = append(merged, t)
			continue
		}
		merged[i].Denied += t.Denied
		merged[i].Details = append(merged[i].Details, t.Details...)
	}
	b.Tallies = merged
	return b
}

type violationList struct {
	Items []struct {
		ViolationID string  `json:"violation_id"`
		UserID      *string `json:"user_id"`
	} `json:"items"`
	NextCursor   *string    `json:"next_cursor"`
	ScannedUntil *time.Time `json:"scanned_until"`
}

func (l *violationList) ids() (ids []string) {
	for _, item := range l.Items {
		ids = append(ids, item.ViolationID)
	}
	return ids
}

const ours = "/api/v1/tenants/acme/violations"

func TestViolationsAreListedByFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	all := w.violate(
		denied(w.acme, second(0)),
		denied(w.acme, second(1), func(v *violations.Violation) {
			v.Rule, v.Mode, v.Plan = 13, rules.ModeShadow,
				"pro"
		}),
		denied(w.acme, second(2), func(v *violations.Violation) {
			v.UserID, v.Subject, v.Endpoint = "a/b\u2028 '=1", "a/b\u2028 '=1", "/api/search/deep"
		}),
		denied(w.acme, second(3), func(v *violations.Violation) {
			v.UserID, v.Subject, v.IP, v.Scope, v.Endpoint = "", "2001:db8::/64", netip.MustParseAddr("2001:db8::1"),
				rules.ScopeIP, "/files/*"
		}),
	)
	theirs := w.violate(denied(w.other, second(0)), denied(w.other, second(1)))
	for query, want := range map[string][]int{
		"":            {3, 2, 1, 0},
		"rule_id=12":  {3, 2, 0},
		"rule_id=99":  nil,
		"mode=shadow": {1},
		"plan=pro":    {1},
		"scope=ip":    {3},
		"user_id=42":  {1, 0},
		"user_id=" + url.QueryEscape("a/b\u2028 '=1"): {2},
		"ip=203.0.113.9":            {2, 1, 0},
		"ip=203.0.113.0/24":         {2, 1, 0},
		"ip=::ffff:203.0.113.9":     {2, 1, 0},
		"ip=2001:db8::/32":          {3},
		"ip=198.51.100.0/24":        nil,
		"endpoint=/api/search":      {1, 0},
		"endpoint=/api/search*":     {2, 1, 0},
		"endpoint=/files/*":         {3},
		"from=" + stamp(second(1)):  {3, 2, 1},
		"until=" + stamp(second(1)): {0},
		"user_id=42&mode=enforce&endpoint=/api/*&plan=free&ip=203.0.113.0/24": {0},
	} {
		got := read[violationList](t, w.get(by, ours+"?"+query))
		var ids []string
		for _, i := range want {
			ids = append(ids, all[i].ID.String())
		}
		if !slices.Equal(got.ids(), ids) {
			t.Errorf("%q lists %v, want %v", query, got.ids(), ids)
		}
		if got.NextCursor != nil || got.ScannedUntil != nil {
			t.Errorf("%q says that there is more", query)
		}
		for _, their := range theirs {
			if slices.Contains(got.ids(), their.ID.String()) {
				t.Errorf("%q lists another tenant's violation", query)
			}
		}
	}
}

func stamp(at time.Time) string { return url.QueryEscape(at.Format(time.RFC3339Nano)) }

func TestPagesOfViolationsFollowOneAnotherAndKeepTheirFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	var all []violations.Violation
	for n := range 5 {
		all = append(all, denied(w.acme, at.Add(time.Duration(n/2)*time.Second))) // some at the same time
	}
	w.violate(all...)
	seen, cursor := map[string]bool{}, ""
	for page := 0; ; page++ {
		got := read[violationList](t, w.get(by, ours+"?limit=2&user_id=42"+cursor))
		for _, id := range got.ids() {
			if seen[id] {
				t.Errorf("%s is listed twice", id)
			}
			seen[id] = true
		}
		if got.NextCursor == nil {
			break
		}
		if cursor = "&cursor=" + *got.NextCursor; page == 0 {
			if got.ScannedUntil == nil || got.ScannedUntil.Before(at) {
				t.Errorf("the first page is known back to %v", got.ScannedUntil)
			}
			for _, other := range []string{"?user_id=43" + cursor, "?limit=2" + cursor, "?user_id=42" + cursor + "x"} {
				if got := w.send(by, "GET", ours+other, nil); got.status != http.StatusBadRequest {
					t.Errorf("the cursor goes with %s: %d", other, got.status)
				}
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d violations were listed, want 5", len(seen))
	}
}

func TestFiltersThatMeanNothingArePointedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	for _, path := range []string{"", "/export", "/tail"} {
		for query, pointer := range map[string]string{
			"ip=everywhere": "/query/ip", "ip=1.2.3.4/40": "/query/ip", "rule_id=x": "/query/rule_id",
			"mode=off": "/query/mode",
			"user_id=": "/query/user_id", "colour=red": "/query/colour",
		} {
			got := w.want(w.send(by, "GET", ours+path+"?"+query, nil), http.StatusBadRequest)
			if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{pointer}) {
				t.Errorf("%s?%s points at %v, want %s", path, query, pointers, pointer)
			}
		}
	}
	got := w.send(by, "GET", ours+"?from=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", nil)
	if pointers := pointersOf(t, w.want(got, http.StatusBadRequest)); !slices.Equal(pointers, []string{"/query/from"}) {
		t.Errorf("a time that ends before it begins points at %v", pointers)
	}
}

func TestAViolationIsShownWithItsRuleAndItsMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	rule := w.rule(w.acme)
	of := func(v *violations.Violation) { v.Rule = rule.ID }
	w.violate(denied(w.other, at.Add(time.Second), of))
	all := w.violate(
		denied(w.acme, at, of, func(v *violations.Violation) { v.Count = 11 }),
		denied(w.acme, at.Add(time.Second), of, func(v *violations.Violation) { v.Count = 5 }),
		denied(w.acme, at.Add(2*time.Second)), // by a rule that was removed
		denied(w.acme, at.Add(time.Minute), of),
		denied(w.acme, at.Add(3*time.Second), func(v *violations.Violation) { v.UserID, v.Subject = "43", "43" }),
	)
	type detail struct {
		Violation struct {
			Count int64 `json:"count"`
		} `json:"violation"`
		Rule *struct {
			RuleID rules.RuleID `json:"rule_id,string"`
		} `json:"rule"`
		DeniedInMinute int64 `json:"denied_in_minute"`
		Beside         []struct {
			ViolationID string `json:"violation_id"`
		} `json:"beside"`
	}
	get := func(i int) detail {
		return read[detail](t, w.get(by, ours+"/"+all[i].ID.String()))
	}
	got := get(0)
	if got.Violation.Count != 11 || got.DeniedInMinute != 16 || got.Rule == nil || got.Rule.RuleID != rule.ID {
		t.Errorf("the violation is shown as %+v", got)
	}
	if len(got.Beside) != 2 || got.Beside[0].ViolationID != all[2].ID.String() ||
		got.Beside[1].ViolationID != all[1].ID.String() {
		t.Errorf("beside it are %+v, want the two of its user and minute", got.Beside)
	}
	if got := get(2); got.Rule != nil || got.DeniedInMinute != 1 {
		t.Errorf("a violation of a removed rule is shown as %+v", got)
	}
	for _, id := range []string{"0-1", "nonsense", "1795175491123456-0", "99999999999999999999-1"} {
		if got := w.send(by, "GET", ours+"/"+id, nil); got.status != http.StatusNotFound {
			t.Errorf("violation %s is answered %d, want 404", id, got.status)
		}
	}
}

func TestAUserIsShownWithTheLatestViolations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	w.violate(denied(w.other, at.Add(time.Hour)))
	all := w.violate(denied(w.acme, at), denied(w.acme, at.Add(time.Second)))
	got := read[struct {
		Recent []struct {
			ViolationID string `json:"violation_id"`
		} `json:"recent_violations"`
	}](t, w.get(by, "/api/v1/tenants/acme/users/42")).Recent
	if len(got) != 2 || got[0].ViolationID != all[1].ID.String() || got[1].ViolationID != all[0].ID.String() {
		t.Errorf("the latest violations are %+v", got)
	}
}

// The plan that a check names goes before the user's own, which the admin API alone knows.
func TestAUserIsShownWithThePlanThatTheDeniedCheckNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, user := w.person(w.acme, auth.Editor), "/api/v1/tenants/acme/users/42"
	free, pro := w.plan(w.acme), w.plan(w.acme)
	rule := func(plan string) int64 {
		return int64(w.rule(w.acme, func(r *rules.Rule) { r.Plan = plan }).ID)
	}
	ofFree, ofPro := rule(free), rule(pro)
	tenant := w.acme
	tenant.DefaultPlan = free
	must(w.system().UpdateTenant(w.ctx(), tenant))(t)
	w.refresh()
	deny := func(plan string, at time.Time) {
		w.violate(denied(w.acme, at, func(v *violations.Violation) { v.Plan = plan }))
	}
	wantSent := func(want string) {
		t.Helper()
		got := read[struct {
			Plan string `json:"plan"`
			Sent string `json:"sent_plan"`
		}](t, w.get(by, user))
		if got.Plan != free || got.Sent != want {
			t.Errorf("the user is shown on %q, sent %q; want %q, sent %q", got.Plan, got.Sent, free, want)
		}
	}
	deny(pro, lately()) // before free was the default: nobody knows
	wantSent("")
	deny(pro, time.Now().Add(20*time.Second))
	wantSent(pro)
	deny(free, time.Now().Add(21*time.Second))
	wantSent("")
	deny(pro, time.Now().Add(22*time.Second))
	wantSent(pro)

	buckets := func(plan string) string {
		return w.get(by, user+"/buckets"+plan).body
	}
	for query, want := range map[string]int64{"": ofFree, "?plan=" + pro: ofPro} {
		if body := buckets(query); strings.Count(body, "bucket_key") != 1 ||
			!strings.Contains(body, fmt.Sprintf(`"bucket_key":"%d:42"`, want)) {
			t.Errorf("the buckets of %q are %s, want that of rule %d", query, body, want)
		}
	}
	w.want(w.send(by, "GET", user+"/buckets?plan=none", nil), http.StatusBadRequest)
}

func TestExportedViolationsAreThoseOfTheFilterAndInert(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	formula := func(v *violations.Violation) {
		v.UserID, v.Subject, v.Endpoint = "=cmd()", "=cmd()", "a;=HYPERLINK(A1);b"
	}
	w.violate(denied(w.other, at))
	all := w.violate(denied(w.acme, at, formula), denied(w.acme, at.Add(time.Second)),
		denied(w.acme, at.Add(2*time.Second), func(v *violations.Violation) {
			v.UserID, v.IP, v.Endpoint, v.Method, v.Plan, v.TokensKnown, v.RetryAfter = "", netip.Addr{}, "", "", "",
				false, 0
		}))
	got := w.get(by, ours+"/export")
	records := must(csv.NewReader(strings.NewReader(got.body)).ReadAll())(t)
	if len(records) != 4 {
		t.Fatalf("%d lines were exported, want a header and 3: %s", len(records), got.body)
	}
	column := func(name string) int { return slices.Index(records[0], name) }
	if records[3][column("user_id")] != "'=cmd()" || records[3][column("endpoint")] != "a;'=HYPERLINK(A1);b" {
		t.Errorf("a spreadsheet would compute %q", records[3])
	}
	for _, name := range []string{
		"user_id", "ip_address", "endpoint", "method", "plan", "tokens_at_time",
		"retry_after_ms",
	} {
		if cell := records[1][column(name)]; cell != "" {
			t.Errorf("what the check had no %s for is exported as %q", name, cell)
		}
	}
	got = w.get(by, ours+"/export?format=jsonl&user_id="+url.QueryEscape("=cmd()"))
	line := read[map[string]any](t, got)
	if strings.Count(got.body, "\n") != 1 || line["violation_id"] != all[0].ID.String() || line["user_id"] != "=cmd()" {
		t.Errorf("as JSON lines it is %s", got.body)
	}
	shown := read[struct {
		Violation map[string]any `json:"violation"`
	}](t, w.send(by, "GET", ours+"/"+all[0].ID.String(), nil)).Violation
	for name := range shown {
		if column(name) < 0 {
			t.Errorf("CSV has no column %s", name)
		}
	}
	if fmt.Sprint(shown) != fmt.Sprint(line) {
		t.Errorf("JSON lines have %v for %v", line, shown)
	}
}

func TestManyViolationsAreExportedInConstantMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	const rows, batch = 60_000, 2_000
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	for first := 0; first < rows; first += batch {
		tally := violations.Tally{Tenant: w.acme.ID, Rule: 12, Minute: at, Subject: "42"}
		for n := range batch {
			v := denied(w.acme, at.Add(time.Duration(first+n)*time.Microsecond))
			tally.Denied++
			tally.Details = append(tally.Details, &v)
		}
		b := violations.Batch{Writer: "many", Number: int64(first + 1), Tallies: []violations.Tally{tally}}
		if err := w.store.WriteViolations(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	path := w.madeFile(by, ours+"/export?format=jsonl")
	// Small buffers and no compression stop the server while nobody reads. A running server would allocate during a
	// collection, and those bytes count as live.
	const buffer = 64 << 10
	server := httptest.NewUnstartedServer(w.handler)
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(buffer)
		}
	}
	server.Start()
	defer server.Close()
	transport := &http.Transport{
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				err = c.(*net.TCPConn).SetReadBuffer(buffer)
			}
			return c, err
		},
	}
	defer transport.CloseIdleConnections()
	lines, size, most := 0, 0, uint64(0)
	before := heap()
	answer := w.openBy(&http.Client{Transport: transport}, server.URL, by, path)
	defer answer.Body.Close()
	for scanner := bufio.NewScanner(answer.Body); scanner.Scan(); {
		if size += len(scanner.Bytes()); !json.Valid(scanner.Bytes()) {
			t.Fatalf("line %d is %s", lines, scanner.Bytes())
		}
		if lines++; lines%(rows/10) == 0 {
			most = max(most, heap())
		}
	}
	grown := int64(most) - int64(before)
	t.Logf("%d lines, %d KiB; the heap grew by %d KiB", lines, size>>10, grown>>10)
	if lines != rows || grown > int64(size)/4 {
		t.Errorf("%d lines of %d bytes were exported while the heap grew by %d", lines, size, grown)
	}
}

// heap returns the bytes of live objects. The second collection empties what the first one left in pools.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func (w *world) open(server string, by caller, path string, header ...string) *http.Response {
	w.t.Helper()
	return w.openBy(http.DefaultClient, server, by, path, header...)
}

func (w *world) openBy(client *http.Client, server string, by caller, path string, header ...string) *http.Response {
	w.t.Helper()
	r := must(http.NewRequestWithContext(w.ctx(), http.MethodGet, server+path, nil))(w.t)
	r.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return must(client.Do(r))(w.t)
}
