package snapshot

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/rules"
)

func matchesNaively(rule *rules.Rule, r *rules.Request, plan string) bool {
	if !rule.Active || rule.Plan != "" && rule.Plan != plan {
		return false
	}
	value := func(s rules.Segment) string {
		switch s.Field {
		case rules.FieldUser:
			return r.UserID
		case rules.FieldEndpoint:
			return r.Endpoint
		case rules.FieldIP:
			if r.IP.IsValid() {
				return r.IP.Unmap().WithZone("").String()
			}
		case rules.FieldAttribute:
			for _, a := range r.Attributes {
				if a.Name == s.Attribute {
					return a.Value
				}
			}
		case rules.FieldGlobal:
			return "global"
		}
		return ""
	}
	return !slices.ContainsFunc(rule.Pattern.Segments(), func(s rules.Segment) bool {
		v := value(s)
		switch {
		case v == "":
			return true
		case s.Placeholder || s.Field == rules.FieldGlobal:
			return false
		case s.Field == rules.FieldIP:
			return !s.Prefix.Contains(netip.MustParseAddr(v))
		case s.Method != "" && s.Method != r.Method:
			return true
		case s.Below:
			return len(v) < len(s.Value) || v[:len(s.Value)] != s.Value
		}
		return v != s.Value
	})
}

func expectNaiveMatches(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, tenant *Tenant, all []rules.Rule, r *rules.Request, plan string,
) {
	t.Helper()
	var want []rules.RuleID
	for i := range all {
		if matchesNaively(&all[i], r, plan) {
			want = append(want, all[i].ID)
		}
	}
	slices.Sort(want)
	if got := matchedIDs(tenant, r, plan); !slices.Equal(got, want) {
		t.Fatalf("plan %q, %+v matches %v, want %v", plan, *r, got, want)
	}
}

func expectMissesOfTheRest(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, tenant *Tenant, all []rules.Rule, r *rules.Request, plan string,
) {
	t.Helper()
	met := matchedIDs(tenant, r, plan)
	misses := tenant.Misses(r, plan, testNow, len(all))
	for _, miss := range misses {
		if slices.Contains(met, miss.Rule.ID) || miss.Reason == "" {
			t.Fatalf("rule %d is met and has the reason %q not to be", miss.Rule.ID, miss.Reason)
		}
	}
	if len(met)+len(misses) != len(all) {
		t.Fatalf("%d rules are met and %d are not, of %d", len(met), len(misses), len(all))
	}
}

type randomWorld struct{ pick func(n int) int }

func (w randomWorld) of(values ...string) string { return values[w.pick(len(values))] }

func (w randomWorld) pattern() string {
	var segments []string
	if w.pick(2) == 0 {
		segments = append(segments, "user:"+w.of("{user_id}", "1", "2"))
	}
	for i := range 6 {
		if w.pick(5) == 0 {
			name := "attr." + string(rune('a'+i))
			segments = append(segments, name+":"+w.of("{"+name+"}", "1", "2"))
		}
	}
	if w.pick(2) == 0 {
		endpoint := w.of("/", "/a", "/a/b", "/a/b/c")
		switch w.pick(5) {
		case 0:
			endpoint = "{endpoint}"
		case 1:
			endpoint = w.of("GET ", "POST ") + endpoint
		case 2:
			endpoint = w.of("", "GET ") + strings.TrimSuffix(endpoint, "/") + "/*"
		}
		segments = append(segments, "endpoint:"+endpoint)
	}
	switch w.pick(6) {
	case 0:
		segments = append(segments, "ip:{ip}")
	case 1:
		segments = append(segments, "ip:"+netip.PrefixFrom(w.ipv4(), w.pick(33)).Masked().String())
	case 2:
		segments = append(segments, `ip:"`+netip.PrefixFrom(w.ipv6(), w.pick(129)).Masked().String()+`"`)
	}
	if len(segments) == 0 {
		return "global"
	}
	return strings.Join(segments, ":")
}

func (w randomWorld) ipv4() netip.Addr {
	return netip.AddrFrom4([4]byte{byte(w.pick(2)), 0, byte(w.pick(2)), byte(w.pick(4))})
}

func (w randomWorld) ipv6() netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 1, 5: byte(w.pick(2)), 15: byte(w.pick(4))})
}

func (w randomWorld) rule(t interface {
	Helper()
	Fatal(args ...any)
}, id rules.RuleID,
) rules.Rule {
	t.Helper()
	rule := activeRule(t, id, w.pattern())
	rule.Plan = w.of("", "", "free", "pro")
	rule.Active = w.pick(10) > 0
	return rule
}

func (w randomWorld) request() rules.Request {
	r := rules.Request{
		UserID:   w.of("", "1", "2", "3"),
		Endpoint: w.of("", "/", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/ab"),
		Method:   w.of("", "GET", "POST"),
	}
	switch w.pick(4) {
	case 0:
		r.IP = w.ipv4()
	case 1:
		r.IP = netip.AddrFrom16(w.ipv4().As16())
	case 2:
		r.IP = w.ipv6()
	}
	for i := range 6 {
		if w.pick(2) == 0 {
			r.Attributes = append(r.Attributes,
				rules.Attribute{Name: string(rune('a' + i)), Value: w.of("", "1", "2", "3")})
		}
	}
	return r
}

func TestMatchAgreesWithAScanOfAllRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld{pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }}
		var all []rules.Rule
		for id := range rapid.IntRange(1, 25).Draw(t, "rules") {
			all = append(all, w.rule(t, rules.RuleID(id)))
		}
		tenant := tenantWith(all...)
		for range 5 {
			r, plan := w.request(), w.of("", "free", "pro")
			expectNaiveMatches(t, tenant, all, &r, plan)
			expectMissesOfTheRest(t, tenant, all, &r, plan)
		}
	})
}

func TestMatchAgreesWithAScanAmongThousandsOfShapes(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	w := randomWorld{pick: random.IntN}
	var all []rules.Rule
	for id := range 8000 {
		all = append(all, w.rule(t, rules.RuleID(id)))
	}
	tenant := tenantWith(all...)
	expectBoundedFiles(t, tenant.index)
	for range 100 {
		r := w.request()
		expectNaiveMatches(t, tenant, all, &r, w.of("", "free", "pro"))
	}
}

func expectBoundedFiles(t *testing.T, x *index) {
	t.Helper()
	thinned := false
	files := maps.Clone(x.files)
	files[""] = x.plain
	for name, file := range files {
		several := 0
		for _, s := range file {
			if bits.OnesCount16(uint16(s.needs)) > 1 {
				several++
			}
		}
		if several > shapesPerFile {
			t.Errorf("file %q has %d shapes of several terms", name, several)
		}
		thinned = thinned || several == shapesPerFile
	}
	if !thinned {
		t.Error("no file was ever full: the test needs more shapes")
	}
}

func TestACheckLooksOnlyIntoTheFilesOfItsAttributes(t *testing.T) {
	t.Parallel()
	var all []rules.Rule
	for i := range 5000 {
		all = append(all, activeRule(t, rules.RuleID(i), fmt.Sprintf("user:{user_id}:attr.k%d:{attr.k%d}", i, i)))
	}
	tenant := tenantWith(all...)
	r := rules.Request{UserID: "42", Attributes: []rules.Attribute{{Name: "k7", Value: "x"}}}
	if got := matchedIDs(tenant, &r, ""); !slices.Equal(got, []rules.RuleID{7}) {
		t.Errorf("matched %v", got)
	}
	if n := len(tenant.index.plain) + len(tenant.index.files["k7"]); n != 1 {
		t.Errorf("a check with k7 looks at %d shapes", n)
	}
}
