package pgstore_test

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// refused is a check that a rule denied. All checks of a rule have one subject, as those of a block do.
func refused(tenant rules.TenantID, rule *rules.Rule, user, ip, endpoint string) *violations.Check {
	return &violations.Check{
		Tenant:  tenant,
		Request: &rules.Request{UserID: user, IP: netip.MustParseAddr(ip), Endpoint: endpoint, Method: "GET"},
		Plan:    "free", Cost: violations.Token,
		Tiers: []violations.Tier{{Rule: rule, Mode: rules.ModeEnforce, Reason: "limit_exceeded"}},
	}
}

type processes []*violations.Recorder

func (w *world) processes(n int) (all processes) {
	for range n {
		all = append(all, violations.NewRecorder(w, violations.Options{}))
	}
	return all
}

func (all processes) flush(t *testing.T) {
	t.Helper()
	var flushing sync.WaitGroup
	for _, r := range all {
		flushing.Go(func() {
			if err := r.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	flushing.Wait()
}

func figures(values []violations.TopValue) map[string]int64 {
	all := map[string]int64{}
	for _, v := range values {
		all[v.Value] = v.Denied
	}
	return all
}

func present(t *testing.T, w *world, by violations.Dimension, now time.Time) (violations.PresentDenials,
	map[string]violations.PresentValue,
) {
	t.Helper()
	since, until := violations.Present(now)
	found := must(w.Present(t.Context(), w.ours.ID, by, "", since, until, 1000))(t)
	values := map[string]violations.PresentValue{}
	for _, v := range found.Values {
		values[v.Value] = v
	}
	return found, values
}

func TestTheFiguresOfAnAttackAreExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := limit(t, w.ours.ID, "global", "", "")
	byEndpoint := limit(t, w.ours.ID, "endpoint:/login", "", "")
	all, byEndpoint = must(w.CreateRule(t.Context(), all))(t), must(w.CreateRule(t.Context(), byEndpoint))(t)
	began := time.Now().UTC().Truncate(violations.SlotLength).Add(-time.Minute)
	recorders := w.processes(2)
	at := func(i int) time.Time { return began.Add(time.Duration(i%10_000) * time.Millisecond) } // 10 s
	for i := range 22_000 {
		r, rule, endpoint := recorders[i%2], &all, "/search"
		switch {
		case i%11 == 0: // others
			r.Record(at(i), refused(w.ours.ID, rule, fmt.Sprint("user ", i/11%40),
				fmt.Sprintf("203.0.%d.9", i/11%20), "/free"))
			continue
		case i%4 == 1:
			rule, endpoint = &byEndpoint, "/login"
		}
		r.Record(at(i), refused(w.ours.ID, rule, "", fmt.Sprintf("198.51.100.%d", i%250), endpoint))
		if i%5_000 == 0 {
			recorders.flush(t)
		}
	}
	recorders.flush(t)
	logins := 5_000
	byRule := map[string]int64{fmt.Sprint(byEndpoint.ID): int64(logins), fmt.Sprint(all.ID): int64(22_000 - logins)}
	want := map[violations.Dimension]map[string]int64{
		violations.ByNetwork:  {"198.51.100.0/24": 20_000, "203.0.0.0/24": 100, "203.0.19.0/24": 100},
		violations.ByEndpoint: {"/search": int64(20_000 - logins), "/login": int64(logins), "/free": 2_000},
		violations.ByUser:     {"user 0": 50, "user 39": 50},
		violations.ByIP:       {"198.51.100.7": 80, "203.0.5.9": 100},
		violations.ByRule:     byRule,
	}
	for by, values := range want {
		if by != violations.ByRule {
			top := must(w.Top(t.Context(), w.ours.ID, violations.TopOf{
				Dimension: by, Since: began, Until: began.Add(time.Minute), Mode: rules.ModeEnforce,
			}, 500))(t)
			if got := figures(top.Values); top.Unattributed != 0 {
				t.Errorf("by %s, %d denials have no value", by, top.Unattributed)
			} else {
				for value, denied := range values {
					if got[value] != denied {
						t.Errorf("by %s, %q was denied %d times, want %d", by, value, got[value], denied)
					}
				}
			}
		}
		found, got := present(t, w, by, began.Add(12*time.Second))
		for value, denied := range values {
			if got[value].Denied != denied {
				t.Errorf("at present, by %s, %q is denied %d times, want %d", by, value, got[value].Denied, denied)
			}
		}
		if found.Denied != 22_000 || found.Unattributed != 0 {
			t.Errorf("at present, by %s, %d are denied, %d of unknown value; want 22,000 and none", by, found.Denied,
				found.Unattributed)
		}
	}
	if _, got := present(t, w, violations.ByNetwork,
		began.Add(12*time.Second)); got["198.51.100.0/24"].Rule != all.ID {
		t.Errorf("the network is limited by rule %d most, want %d", got["198.51.100.0/24"].Rule, all.ID)
	}
}

func TestTheDenialsOfABlockedNetworkGoOnCounting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	network := "198.51.100.0/24"
	block := limit(t, w.ours.ID, "ip:"+network, "", "")
	began := time.Now().UTC().Truncate(violations.SlotLength).Add(-time.Minute)
	recorders := w.processes(2)
	for second := range 30 {
		for i := range 200 {
			recorders[i%2].Record(began.Add(time.Duration(second)*time.Second),
				refused(w.ours.ID, &block, "", fmt.Sprintf("198.51.100.%d", i), "/search"))
		}
		recorders.flush(t)
		top := must(w.Top(t.Context(), w.ours.ID, violations.TopOf{
			Dimension: violations.ByNetwork, Since: began.Add(-time.Hour), Until: began.Add(time.Hour),
		}, 10))(t)
		if got, want := figures(top.Values)[network], int64(second+1)*200; got != want || top.Unattributed != 0 {
			t.Fatalf("after %d seconds %d denials are counted, and %d have no network; want %d", second+1, got,
				top.Unattributed, want)
		}
	}
}

func TestNoDenialIsPresentTwentySecondsAfterTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := time.Now().UTC().Truncate(violations.SlotLength).Add(-5 * time.Minute)
	recorders := w.processes(1)
	const lasts = 40 // seconds
	for i := range lasts * 10 {
		recorders[0].Record(began.Add(time.Duration(i)*100*time.Millisecond),
			refused(w.ours.ID, &w.ours.user, "", "198.51.100.7", "/search"))
	}
	recorders.flush(t)
	for second := 12; second <= lasts; second++ { // 10 s and their arrival
		found, _ := present(t, w, violations.ByNetwork, began.Add(time.Duration(second)*time.Second))
		if found.Denied != 100 {
			t.Errorf("after %d s %d denials are present, want 100", second, found.Denied)
		}
	}
	for after := range 60 {
		end := began.Add(lasts * time.Second)
		found, values := present(t, w, violations.ByNetwork, end.Add(time.Duration(after)*time.Second))
		if after >= 20 && found.Denied > 0 {
			t.Errorf("%d s after the end %d denials are present", after, found.Denied)
		}
		if got := values["198.51.100.0/24"]; after >= 20 && got.Earlier != 10*lasts {
			t.Errorf("%d s after the end %d denials are known from before, want %d", after, got.Earlier, 10*lasts)
		}
	}
}

func TestTotalsStayAsTheirDenialsGrowOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC()
	first := now.Truncate(time.Minute).Add(-30 * time.Minute)
	recorders := w.processes(2)
	block := must(w.CreateRule(t.Context(), limit(t, w.ours.ID, "global", "", "")))(t)
	for second := range 600 { // of ten minutes
		for i := range 20 {
			recorders[i%2].Record(first.Add(time.Duration(second)*time.Second), refused(w.ours.ID, &block,
				fmt.Sprint("user ", i), fmt.Sprintf("198.51.100.%d", i), "/search"))
		}
	}
	recorders.flush(t)
	for i := range 1200 { // more than a process counts
		recorders[0].Record(first, refused(w.ours.ID, &w.ours.user, fmt.Sprint("bot ", i), "203.0.113.9", "/login"))
	}
	recorders.flush(t)
	recorders[0].Record(now, refused(w.ours.ID, &block, "user 0", "198.51.100.7", "/search"))
	recorders.flush(t)
	type answer map[violations.Dimension]violations.Top
	tops := func() (all []answer) {
		for _, of := range []violations.TopOf{
			{Since: first.Add(-time.Hour), Until: now.Add(time.Minute)},
			{Since: first.Add(90 * time.Second), Until: first.Add(150 * time.Second)}, // two whole minutes
			{Since: first, Until: first.Add(time.Minute), Rule: w.ours.user.ID, Mode: rules.ModeEnforce},
		} {
			found := answer{}
			for _, of.Dimension = range []violations.Dimension{
				violations.ByUser, violations.ByIP, violations.ByNetwork, violations.ByEndpoint,
			} {
				top := must(w.Top(t.Context(), w.ours.ID, of, 2000))(t)
				for i := range top.Values {
					top.Values[i].LastAt = time.Time{}
				}
				found[of.Dimension] = top
			}
			all = append(all, found)
		}
		return all
	}
	charts := func() (all []violations.StepCounts) {
		for _, f := range []violations.Filter{
			{},
			{UserID: "user 3"},
			{Endpoint: "/search"},
			{IP: netip.MustParsePrefix("198.51.100.0/24")},
			{IP: netip.MustParsePrefix("203.0.113.9/32"), Rule: w.ours.user.ID},
			{Rule: w.ours.user.ID, Mode: rules.ModeEnforce},
		} {
			counts := must(w.ViolationsInSteps(t.Context(), w.ours.ID, &f,
				violations.StepsFor(first.Add(-time.Hour), now)))(t)
			counts.LookedAt, counts.LookedBackTo = 0, time.Time{}
			all = append(all, counts)
		}
		return all
	}
	before, chartsBefore := tops(), charts()
	for i, want := range []int64{13_201, 600, 12_001, 12_001, 1_200, 1_200} {
		var sum int64
		for _, step := range chartsBefore[i].Counts {
			sum += step.Checks
		}
		isUser := i == 1 // beside more than a process counts
		if sum != want || chartsBefore[i].Exact == isUser {
			t.Errorf("chart %d has %d denials, exactly: %t; want %d", i, sum, chartsBefore[i].Exact, want)
		}
	}
	attack := "198.51.100.0/24"
	if got := figures(before[0][violations.ByNetwork].Values)[attack]; got != 12_001 {
		t.Errorf("%d denials of the network are counted, want 12,001", got)
	}
	if got := figures(before[1][violations.ByNetwork].Values)[attack]; got != 2*60*20 {
		t.Errorf("%d denials of the network are counted in two minutes, want 2,400", got)
	}
	if got := before[2][violations.ByUser]; len(got.Values)+int(got.Unattributed) != 1200 || got.Unattributed == 0 {
		t.Errorf("%d bots are known, and %d are not", len(got.Values), got.Unattributed)
	}
	slots := rowsIn(t, w.url, "denial_count")
	must(w.KeepViolations(t.Context(), now, keep))(t)
	if after := charts(); !reflect.DeepEqual(after, chartsBefore) {
		t.Errorf("by the minute the charts are %+v, and were %+v", after, chartsBefore)
	}
	if after := tops(); !reflect.DeepEqual(after, before) {
		t.Errorf("by the minute the totals are %+v, and were %+v", after, before)
	}
	minutes := rowsIn(t, w.url, "denial_count")
	if minutes > slots/5 {
		t.Errorf("%d of %d rows are left", minutes, slots)
	}
	late := first.Add(17 * time.Second) // written after the minute was summed
	recorders[1].Record(late, refused(w.ours.ID, &block, "user 0", "198.51.100.7", "/search"))
	recorders.flush(t)
	must(w.KeepViolations(t.Context(), now, keep))(t)
	if got := figures(tops()[0][violations.ByNetwork].Values)[attack]; got != 12_002 {
		t.Errorf("with a late one %d denials of the network are counted, want 12,002", got)
	}
	if rows := rowsIn(t, w.url, "denial_count"); rows != minutes {
		t.Errorf("a late denial left %d rows, want %d", rows, minutes)
	}
}

func TestAGreedyTenantsRecentDenialsTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := time.Now().UTC().Truncate(violations.SlotLength).Add(-time.Minute)
	recorders := w.processes(1)
	const invented = 200_000
	for i := range invented {
		recorders[0].Record(began, refused(w.theirs.ID, &w.theirs.user, fmt.Sprint("invented ", i),
			fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff), fmt.Sprint("/", i)))
		if i%1000 == 0 {
			recorders[0].Record(began, refused(w.ours.ID, &w.ours.user, fmt.Sprint("user ", i/1000),
				fmt.Sprintf("203.0.%d.9", i/1000), "/search"))
		}
	}
	recorders.flush(t)
	found, values := present(t, w, violations.ByUser, began.Add(12*time.Second))
	if len(found.Values) != 200 || found.Denied != 200 || found.Unattributed != 0 || values["user 7"].Denied != 1 {
		t.Errorf("%d users are known, and %d of %d denials have none", len(found.Values), found.Unattributed,
			found.Denied)
	}
	for _, by := range []violations.Dimension{violations.ByRule, violations.ByNetwork} {
		since, until := violations.Present(began.Add(12 * time.Second))
		theirs := must(w.Present(t.Context(), w.theirs.ID, by, "", since, until, 1000))(t)
		if theirs.Denied != invented || len(theirs.Values) > 500 {
			t.Errorf("of the greedy tenant, by %s, %d denials of %d values are counted", by, theirs.Denied,
				len(theirs.Values))
		}
		if by == violations.ByRule && (theirs.Unattributed != 0 || theirs.Values[0].Denied != invented) {
			t.Errorf("of the greedy tenant's rule, %+v is known", theirs)
		}
	}
	if rows := rowsIn(t, w.url, "denial_count"); rows > 4*501+3*200+1 {
		t.Errorf("there are %d rows", rows)
	}
}

func TestRecentDenialsAreWrittenEachSecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := violations.NewRecorder(w, violations.Options{FlushInterval: time.Hour})
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, time.Minute) })
	r.Record(time.Now(), refused(w.ours.ID, &w.ours.user, "42", "198.51.100.7", "/search"))
	for rowsIn(t, w.url, "denial_count") == 0 {
		if t.Context().Err() != nil {
			t.Fatal("nothing is written")
		}
	}
	if rows := rowsIn(t, w.url, details); rows != 0 {
		t.Errorf("%d violations are written before their time", rows)
	}
	end()
	running.Wait()
	if rows := rowsIn(t, w.url, details); rows != 1 {
		t.Errorf("%d violations are written at the end, want 1", rows)
	}
}
