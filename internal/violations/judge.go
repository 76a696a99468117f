package violations

import (
	"sort"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// MinuteCount is an alert's count for a rule or subject in a minute.
type MinuteCount struct {
	Rule    rules.RuleID // 0: all checks
	Subject string       // "": the whole rule
	Minute  time.Time
	Count   int64
	Checks  int64 // including Count; 0 if the kind of alert does not use it
}

// Firing is a reason to raise an alert.
type Firing struct {
	Rule    rules.RuleID // 0 for all checks
	Subject string       // "" for the whole rule
	Denied  int64        // or the count of another kind
	Since   time.Time    // the first counted minute
}

// PreviewFiring is a past Firing.
type PreviewFiring struct {
	Firing
	At time.Time // its minute
}

const minShareChecks = 20

// coolDown must pass before an alert is raised again for the same rule and subject.
func (a *Alert) coolDown() time.Duration { return a.Window + time.Minute }

// Least returns the smallest sum of counts that can fire the alert.
func (a *Alert) Least() int64 {
	if a.Kind == AlertNearLimit {
		return (a.Threshold*minShareChecks + 99) / 100
	}
	return a.Threshold
}

// RaisedBefore returns the time since which an alert that may be raised was not raised.
func (a *Alert) RaisedBefore(now time.Time) time.Time { return now.Add(-a.coolDown()) }

// Firings evaluates counts, which are sorted by rule, subject and minute.
func (a *Alert) Firings(counts []MinuteCount, now time.Time) (firings []Firing) {
	for group := range groups(counts) {
		if firing, fires := a.judge(group, now); fires {
			firings = append(firings, firing)
		}
	}
	return firings
}

// Preview returns when an alert would have been raised, latest first. Preview evaluates the end of each minute, the job
// every ten seconds.
func (a *Alert) Preview(counts []MinuteCount, until time.Time) (firings []PreviewFiring) {
	for group := range groups(counts) {
		for at := endOf(group[0].Minute); len(group) > 0 && !at.After(until); {
			if age := at.Sub(group[0].Minute); age >= a.coolDown()+time.Minute { // too old for both windows
				group = group[1:]
				continue
			}
			if group[0].Minute.After(at) {
				at = endOf(group[0].Minute)
				continue
			}
			if firing, fires := a.judge(group, at); fires {
				firings = append(firings, PreviewFiring{Firing: firing, At: at.Truncate(time.Minute)})
				at = at.Add(a.coolDown())
			} else {
				at = at.Add(time.Minute)
			}
		}
	}
	sort.SliceStable(firings, func(i, j int) bool { return firings[i].At.After(firings[j].At) })
	return firings
}

func endOf(minute time.Time) time.Time { return minute.Add(time.Minute - time.Microsecond) }

// judge evaluates a rule or subject. The window ends with the running minute or, since counts are written late, with
// the one before.
func (a *Alert) judge(group []MinuteCount, now time.Time) (firing Firing, fires bool) {
	var running, complete MinuteCount
	after, lastMinute := now.Add(-a.Window), now.Add(-time.Minute)
	for _, c := range group {
		if c.Minute.After(now) {
			break
		}
		if !c.Minute.After(after.Add(-time.Minute)) {
			continue
		}
		if firing.Since.IsZero() {
			firing = Firing{Rule: c.Rule, Subject: c.Subject, Since: c.Minute}
		}
		if c.Minute.After(after) {
			running.Count, running.Checks = running.Count+c.Count, running.Checks+c.Checks
		}
		if !c.Minute.After(lastMinute) {
			complete.Count, complete.Checks = complete.Count+c.Count, complete.Checks+c.Checks
		}
	}
	firing.Denied = max(a.measure(running), a.measure(complete))
	return firing, firing.Denied >= a.Threshold
}

func (a *Alert) measure(sum MinuteCount) int64 {
	if a.Kind != AlertNearLimit {
		return sum.Count
	}
	if sum.Checks < minShareChecks {
		return 0
	}
	return 100 * sum.Count / sum.Checks
}

func groups(counts []MinuteCount) func(yield func([]MinuteCount) bool) {
	return func(yield func([]MinuteCount) bool) {
		for len(counts) > 0 {
			n := 1
			for n < len(counts) && counts[n].Rule == counts[0].Rule && counts[n].Subject == counts[0].Subject {
				n++
			}
			if !yield(counts[:n]) {
				return
			}
			counts = counts[n:]
		}
	}
}
