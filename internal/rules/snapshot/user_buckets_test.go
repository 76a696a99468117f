package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestUserBucketsAreThoseThatTheUserIDAloneFixes(t *testing.T) {
	t.Parallel()
	all := map[string]func(*rules.Rule){
		"user:{user_id}":                                  nil,
		"user:{user_id}:endpoint:/a":                      nil,
		"user:{user_id}:endpoint:POST /a/*:attr.org:acme": nil,
		"user:{user_id}:ip:203.0.113.0/24":                nil,
		"endpoint:/b:user:{user_id}":                      nil,
		"user:42":                                         nil,
		"user:{user_id}:endpoint:/shadow":                 func(r *rules.Rule) { r.Mode = rules.ModeShadow },
		"user:{user_id}:endpoint:/pro":                    func(r *rules.Rule) { r.Plan = "pro" },
	}
	others := map[string]func(*rules.Rule){
		"user:{user_id}:ip:{ip}":             nil,
		"user:{user_id}:endpoint:{endpoint}": nil,
		"user:{user_id}:attr.org:{attr.org}": nil,
		"user:42:ip:{ip}":                    nil,
		"user:4":                             nil,
		"endpoint:/a":                        nil,
		"endpoint:{endpoint}":                nil,
		"global":                             nil,
		"user:{user_id}:endpoint:/off":       func(r *rules.Rule) { r.Active = false },
		"user:{user_id}:endpoint:/free":      func(r *rules.Rule) { r.Plan = "free" },
		"user:{user_id}:endpoint:/block":     func(r *rules.Rule) { r.Action = rules.ActionBlock },
		"user:{user_id}:endpoint:/bypass":    func(r *rules.Rule) { r.Action = rules.ActionBypass },
	}
	rows := Rows{
		Tenants:     []rules.Tenant{tenantRow()},
		Plans:       []rules.Plan{{TenantID: testTenant, Name: "free"}, {TenantID: testTenant, Name: "pro"}},
		Assignments: []rules.Assignment{{TenantID: testTenant, UserID: "42", Plan: "pro"}},
	}
	for _, set := range []map[string]func(*rules.Rule){all, others} {
		for pattern, edit := range set {
			rule := activeRule(t, rules.RuleID(len(rows.Rules)+1), pattern)
			if edit != nil {
				edit(&rule)
			}
			rows.Rules = append(rows.Rules, rule)
		}
	}
	tenant := New(rows).Tenant(testTenant)

	var got, want []string
	for _, m := range tenant.UserBuckets("42", "", testNow, 100) {
		got = append(got, m.Rule.Pattern.String()+" "+m.Subject)
	}
	for pattern := range all {
		subject := "42"
		if pattern == "user:42" {
			subject = ""
		}
		parsed, _ := rules.ParsePattern(pattern)
		want = append(want, parsed.String()+" "+subject)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := tenant.UserBuckets("42", "", testNow, 3); len(got) != 3 || got[0].Rule.ID != 1 {
		t.Errorf("of three at most: %+v", got)
	}
	if got := tenant.UserBuckets("", "", testNow, 100); len(got) != 0 {
		t.Errorf("nobody's: %+v", got)
	}
}

func userWorld(t *rapid.T, w randomWorld) *Tenant {
	rows := Rows{
		Tenants:     []rules.Tenant{tenantRow()},
		Plans:       []rules.Plan{{TenantID: testTenant, Name: "free"}, {TenantID: testTenant, Name: "pro"}},
		Assignments: []rules.Assignment{{TenantID: testTenant, UserID: "1", Plan: "pro"}},
	}
	for id := range rapid.IntRange(1, 25).Draw(t, "rules") {
		rule := w.rule(t, rules.RuleID(id))
		rule.Action = rules.Action(w.of(string(rules.ActionLimit), string(rules.ActionLimit), string(rules.ActionLimit),
			string(rules.ActionBlock)))
		rows.Rules = append(rows.Rules, rule)
		if rule.Pattern.SplitsByUser() && w.pick(2) == 0 {
			o := rules.Override{
				TenantID: testTenant, RuleID: rule.ID, UserID: w.of("1", "2", "3"), RatePerSecond: 7, Burst: 70,
				InForceSince: testNow.Add(-time.Minute),
			}
			if w.pick(3) == 0 {
				o.ExpiresAt = testNow.Add(time.Duration(w.pick(3)-1) * time.Second)
			}
			rows.Overrides = append(rows.Overrides, o)
		}
	}
	return New(rows).Tenant(testTenant)
}

func onlyPlaceholderIsUser(p rules.Pattern) bool {
	text := p.String()
	return !strings.Contains(strings.ReplaceAll(text, "{user_id}", ""), "{") &&
		slices.ContainsFunc(p.Segments(), func(s rules.Segment) bool { return s.Field == rules.FieldUser })
}

func requestFor(rule *rules.Rule, user string) rules.Request {
	r := rules.Request{UserID: user}
	for _, s := range rule.Pattern.Segments() {
		switch s.Field {
		case rules.FieldEndpoint:
			r.Endpoint, r.Method = s.Value, s.Method
		case rules.FieldIP:
			r.IP = s.Prefix.Addr()
		case rules.FieldAttribute:
			r.Attributes = append(r.Attributes, rules.Attribute{Name: s.Attribute, Value: s.Value})
		case rules.FieldUser, rules.FieldGlobal:
		}
	}
	return r
}

func matchOf(t *rapid.T, tenant *Tenant, r *rules.Request) []rules.Match {
	plan, err := tenant.PlanOf(r)
	if err != nil {
		t.Fatal(err)
	}
	return tenant.Match(r, plan, testNow, nil)
}

func TestUserBucketsAgreeWithMatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld{pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }}
		tenant := userWorld(t, w)
		user := w.of("1", "2", "3")
		buckets := tenant.UserBuckets(user, "", testNow, 100)
		for _, bucket := range buckets {
			r := requestFor(bucket.Rule, user)
			if !slices.Contains(matchOf(t, tenant, &r), bucket) {
				t.Fatalf("no check of user %s has the bucket %+v", user, bucket)
			}
		}
		for range 5 {
			r := w.request()
			r.UserID = user
			for _, m := range matchOf(t, tenant, &r) {
				fixed := m.Rule.Action == rules.ActionLimit && onlyPlaceholderIsUser(m.Rule.Pattern)
				if fixed != slices.Contains(buckets, m) {
					t.Fatalf("a check of user %s has the bucket %+v of %s; listed: %t", user, m, m.Rule.Pattern, !fixed)
				}
			}
		}
	})
}

func TestABucketThatACheckUsedIsFoundByItsSubject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld{pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }}
		tenant := userWorld(t, w)
		r := w.request()
		r.UserID = rapid.OneOf(rapid.SampledFrom([]string{"1", "2", "3", ",", "1:1", "1:1,1:1"}),
			rapid.String()).Draw(t, "user")
		for _, m := range tenant.Match(&r, w.of("", "free", "pro"), testNow, nil) {
			got, ok := tenant.Bucket(m.Rule.ID, m.Subject, testNow)
			if want := m.Rule.Action == rules.ActionLimit; ok != want || ok && got != m {
				t.Fatalf("subject %q of %s: %+v, %t; want %+v", m.Subject, m.Rule.Pattern, got, ok, m)
			}
		}
	})
}

func TestSubjectsThatNoCheckHasAreNoBuckets(t *testing.T) {
	t.Parallel()
	block := activeRule(t, 4, "user:{user_id}")
	block.Action = rules.ActionBlock
	tenant := tenantWith(activeRule(t, 1, "global"), activeRule(t, 2, "user:{user_id}"),
		activeRule(t, 3, "user:{user_id}:endpoint:{endpoint}"), block)
	for rule, subjects := range map[rules.RuleID][]string{
		1: {"42"},
		2: {""},
		3: {
			"", "42", "2:42", "2:42,", "2:42,2:/", "2:42,1:/a", "02:42,1:/", "+2:42,1:/", "2:42;1:/", "2:42,1:/,1:/",
			"0:,1:/", "-1:,1:/", "2:42,99999999999999999999:/", "2:42,x:/", "2:42,1/",
		},
		4: {"42"},
		5: {"42"},
	} {
		for _, subject := range subjects {
			if m, ok := tenant.Bucket(rule, subject, testNow); ok {
				t.Errorf("rule %d has the subject %q: %+v", rule, subject, m)
			}
		}
	}
	for rule, subject := range map[rules.RuleID]string{1: "", 2: "42", 3: "2:42,1:/"} {
		if _, ok := tenant.Bucket(rule, subject, testNow); !ok {
			t.Errorf("rule %d has no subject %q", rule, subject)
		}
	}
}

func TestUserBucketsOfManyRulesAreInOrderAndBounded(t *testing.T) {
	t.Parallel()
	rows := Rows{
		Tenants:     []rules.Tenant{tenantRow()},
		Plans:       []rules.Plan{{TenantID: testTenant, Name: "free"}, {TenantID: testTenant, Name: "pro"}},
		Assignments: []rules.Assignment{{TenantID: testTenant, UserID: "42", Plan: "pro"}},
	}
	var want, ofPlans []rules.RuleID
	for id := rules.RuleID(1); id <= 500; id++ {
		user := []string{"{user_id}", "42", "43"}[id%3]
		rule := activeRule(t, id, fmt.Sprintf("user:%s:endpoint:/%d", user, id))
		rule.Plan = []string{"", "pro", "free", "pro"}[id%4]
		if user != "43" && rule.Plan != "free" {
			want = append(want, id)
		}
		if user != "43" {
			ofPlans = append(ofPlans, id)
		}
		rows.Rules = append(rows.Rules, rule)
	}
	tenant := New(rows).Tenant(testTenant)
	var all []rules.RuleID
	for m := range tenant.UserBucketsOfPlans("42", testNow) {
		all = append(all, m.Rule.ID)
	}
	if slices.Sort(all); !slices.Equal(all, ofPlans) {
		t.Errorf("of all plans: %v, want %v", all, ofPlans)
	}
	for m := range tenant.UserBucketsOfPlans("", testNow) {
		t.Errorf("nobody has a bucket of rule %d", m.Rule.ID)
	}
	for _, limit := range []int{0, 1, 100, len(want), 1000} {
		var got []rules.RuleID
		for _, m := range tenant.UserBuckets("42", "", testNow, limit) {
			got = append(got, m.Rule.ID)
		}
		if !slices.Equal(got, want[:min(limit, len(want))]) {
			t.Errorf("of %d at most: %v, want %v", limit, got, want[:min(limit, len(want))])
		}
	}
}

func BenchmarkUserBuckets(b *testing.B) {
	for _, size := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			all := make([]rules.Rule, 0, size)
			for i := range size {
				all = append(all, activeRule(b, rules.RuleID(i+1), "user:"+userName(i)+":endpoint:/a"))
			}
			all[size-1] = activeRule(b, rules.RuleID(size), "user:{user_id}")
			tenant := tenantWith(all...)
			tenant.UserBuckets("somebody", "", testNow, 1) // sorts them
			for b.Loop() {
				if len(tenant.UserBuckets("somebody", "", testNow, 100)) != 1 {
					b.Fatal("the bucket is not found")
				}
			}
		})
	}
}
