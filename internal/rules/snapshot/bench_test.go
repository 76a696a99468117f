package snapshot

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type filler func(i int) (pattern, plan string)

var fillers = map[string]filler{
	"mixed": func(i int) (string, string) {
		// Six kinds, so that ten rules have all the shapes of a hundred thousand.
		return []string{
			fmt.Sprintf("user:%d", i+1000),
			fmt.Sprintf("user:{user_id}:endpoint:/v%d/x", i),
			fmt.Sprintf("endpoint:POST /v%06d/*", i),
			fmt.Sprintf("ip:10.%d.%d.%d", i>>16, i>>8&255, i&255),
			fmt.Sprintf("attr.org:org-%d", i),
			fmt.Sprintf("endpoint:/v%d/y", i),
		}[i%6], []string{"", "pro"}[i%2]
	},
	"one user's endpoints": func(i int) (string, string) { return fmt.Sprintf("user:42:endpoint:/v%d", i), "" },
	"networks": func(i int) (string,
		string,
	) {
		return fmt.Sprintf("ip:10.%d.%d.%d/32", i>>16, i>>8&255, i&255), ""
	},
	"networks of all lengths": func(i int) (string, string) {
		addr := netip.AddrFrom4([4]byte{byte(128 + i>>16), byte(i >> 8), byte(i), byte(i * 7)})
		return "user:" + userName(i) + ":ip:" + netip.PrefixFrom(addr, 8+i%25).Masked().String(), ""
	},
	"attribute values": func(i int) (string, string) { return fmt.Sprintf("attr.org:org-%d", i), "" },
	"paths with a star": func(i int) (string, string) {
		return fmt.Sprintf("endpoint:/api/%d/%d/*", i/300, i%300), ""
	},
	"copies per plan": func(i int) (string, string) { return "user:{user_id}", fmt.Sprintf("plan-%d", i) },
}

func benchmarkTenant(b *testing.B, size int, fill filler) *Tenant {
	b.Helper()
	all := []rules.Rule{
		activeRule(b, 1, "user:{user_id}"), activeRule(b, 2, "endpoint:/api/*"),
		activeRule(b, 3, "global"), activeRule(b, 4, "ip:{ip}"),
	}
	for i := len(all); i < size; i++ {
		pattern, plan := fill(i)
		rule := activeRule(b, rules.RuleID(i+1), pattern)
		rule.Plan, rule.Name = plan, fmt.Sprint(i)
		all = append(all, rule)
	}
	return tenantWith(all...)
}

func benchmarkRequests() []rules.Request {
	var requests []rules.Request
	for i := range 16 {
		requests = append(requests, rules.Request{
			UserID: userName(i), Endpoint: fmt.Sprintf("/api/search/%d", i), Method: "GET",
			IP:         netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}),
			Attributes: []rules.Attribute{{Name: "org", Value: "acme"}},
		})
	}
	return requests
}

// BenchmarkMatch matches the same checks among ten rules and among a hundred thousand: the ratio should stay below 1.2.
// The two alternate, and the best burst of each counts, so that a busy machine slows both or neither.
func BenchmarkMatch(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(fillers)) {
		b.Run(name, func(b *testing.B) {
			few, many := benchmarkTenant(b, 10, fillers[name]), benchmarkTenant(b, 100_000, fillers[name])
			bestFew, bestMany := time.Hour, time.Hour
			for b.Loop() {
				bestFew = min(bestFew, matchBurst(b, few))
				bestMany = min(bestMany, matchBurst(b, many))
			}
			b.ReportMetric(float64(bestFew)/matchBurstLength, "ns/10-rules")
			b.ReportMetric(float64(bestMany)/matchBurstLength, "ns/100000-rules")
			b.ReportMetric(float64(bestMany)/float64(bestFew), "ratio")
		})
	}
}

const matchBurstLength = 320

func matchBurst(b *testing.B, tenant *Tenant) time.Duration {
	b.Helper()
	requests := benchmarkRequests()
	var room [8]rules.Match
	began := time.Now()
	for i := range matchBurstLength {
		if got := tenant.Match(&requests[i%len(requests)], "free", testNow, room[:0]); len(got) != 4 {
			b.Fatalf("%d rules match, not 4", len(got))
		}
	}
	return time.Since(began)
}

func BenchmarkMatchManyShapes(b *testing.B) {
	tenant := benchmarkTenant(b, 20_000, func(i int) (string, string) {
		below := "/api/search/" + fmt.Sprintf("%0*d", i/33%200, i) // 200 lengths of paths, 33 of networks
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, 0}), i%33).Masked()
		return fmt.Sprintf("user:%s:endpoint:%s/*:ip:%s", userName(i), below, network), []string{"", "free", "pro"}[i%3]
	})
	shapes := len(tenant.index.plain)
	for _, file := range tenant.index.files {
		shapes += len(file)
	}
	b.Logf("%d shapes in the index", shapes)
	best := time.Hour
	for b.Loop() {
		best = min(best, matchBurst(b, tenant))
	}
	b.ReportMetric(float64(best)/matchBurstLength, "ns/match")
}

func BenchmarkMisses(b *testing.B) {
	tenant := benchmarkTenant(b, 100_000, fillers["mixed"])
	requests := benchmarkRequests()
	b.ReportAllocs()
	for b.Loop() {
		if got := tenant.Misses(&requests[0], "free", testNow, 100); len(got) != 100 {
			b.Fatalf("%d misses", len(got))
		}
	}
}

// As with a database, each row has memory of its own.
func manyRows(b *testing.B, visit func(Rows)) {
	b.Helper()
	visit(Rows{
		Tenants: []rules.Tenant{tenantRow()},
		Plans:   []rules.Plan{{TenantID: testTenant, Name: "free"}, {TenantID: testTenant, Name: "pro"}},
	})
	const page = 5000
	for start := 0; start < 100_000; start += page {
		rows := Rows{}
		for i := start; i < start+page; i++ {
			pattern, _ := fillers["mixed"](i)
			rule := activeRule(b, rules.RuleID(i+1), pattern)
			rule.Plan, rule.Name = string([]byte("pro")), fmt.Sprint(i)
			rule.Description = fmt.Sprintf("what rule %d is there for", i)
			rows.Rules = append(rows.Rules, rule)
			rows.Keys = append(rows.Keys, auth.Key{
				ID: fmt.Sprintf("key%013d", i), TenantID: testTenant,
				Permissions: []auth.Permission{auth.PermissionCheck},
			})
		}
		visit(rows)
	}
	for start := 0; start < 1_000_000; start += page {
		rows := Rows{}
		for i := start; i < start+page; i++ {
			rows.Assignments = append(rows.Assignments,
				rules.Assignment{TenantID: testTenant, UserID: userName(i), Plan: string([]byte("pro"))})
		}
		visit(rows)
	}
}

func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// held-MB is the size of the Snapshot.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		before := heap()
		s := loadMany(b)
		b.ReportMetric(heap()-before, "held-MB")
		runtime.KeepAlive(s)
	}
}

func loadMany(b *testing.B) *Snapshot {
	b.Helper()
	d := newReread(new(Snapshot), nil, time.UnixMicro(0))
	manyRows(b, func(rows Rows) { d.add(&rows) })
	s, lost := d.snapshot()
	if len(lost) > 0 {
		b.Fatal("the first load lost rows")
	}
	return s
}

// added-MB is the memory near its end, on top of the Snapshot.
func BenchmarkReread(b *testing.B) {
	s := loadMany(b)
	for b.Loop() {
		before := heap()
		d := newReread(s, nil, time.UnixMicro(0))
		manyRows(b, func(rows Rows) { d.add(&rows) })
		b.ReportMetric(heap()-before, "added-MB")
		if next, lost := d.snapshot(); next != s || len(lost) > 0 {
			b.Fatal("the re-read found changes")
		}
	}
}

func BenchmarkOneChange(b *testing.B) {
	s := loadMany(b)
	changes := map[string]func(i int) Rows{
		"assignment": func(i int) Rows {
			return Rows{Assignments: []rules.Assignment{{TenantID: testTenant, UserID: userName(i), Plan: "free"}}}
		},
		"rule": func(i int) Rows {
			rule := activeRule(b, 1, "global")
			rule.UpdatedAt = testNow.Add(time.Duration(i))
			return Rows{Rules: []rules.Rule{rule}}
		},
	}
	for name, change := range changes {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			current := s
			for i := 0; b.Loop(); i++ {
				current = current.With(change(i))
			}
		})
	}
}
