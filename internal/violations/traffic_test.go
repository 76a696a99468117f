package violations_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestStepsFitTheRange(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 21, 12, 34, 56, 0, time.UTC)
	const day = 24 * time.Hour
	for length, want := range map[time.Duration]struct {
		step  time.Duration
		count int
	}{
		0:                {time.Minute, 1},
		time.Minute:      {time.Minute, 2},
		3 * time.Hour:    {time.Minute, 181},
		12 * time.Hour:   {5 * time.Minute, 145},
		day:              {15 * time.Minute, 97},
		7 * day:          {time.Hour, 169},
		30 * day:         {6 * time.Hour, 121},
		90 * day:         {day, 91},
		396 * day:        {7 * day, 58},
		10 * 365 * day:   {7 * day, 523}, // the longest there is
		30 * time.Second: {time.Minute, 1},
	} {
		since := until.Add(-length)
		got := violations.StepsFor(since, until)
		if got.Step != want.step || got.Count() != want.count {
			t.Errorf("%s is shown in %d steps of %s, want %d of %s", length, got.Count(), got.Step, want.count,
				want.step)
		}
		if got.Since.After(since) || got.Until.Before(until) || got.Since.Unix()%int64(got.Step.Seconds()) != 0 ||
			since.Sub(got.Since) >= got.Step || got.Until.Sub(until) >= got.Step {
			t.Errorf("%s before %s is shown from %s to %s", length, until, got.Since, got.Until)
		}
	}
}

func TestShortTimesHaveFineSteps(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 21, 12, 34, 56, 0, time.UTC)
	for length, want := range map[time.Duration]time.Duration{
		30 * time.Second: time.Second, 10 * time.Minute: 5 * time.Second, 40 * time.Minute: 15 * time.Second,
		time.Hour: time.Minute, 24 * time.Hour: 15 * time.Minute,
	} {
		if got := violations.FineSteps(until.Add(-length), until); got.Step != want || got.Count() > 200 {
			t.Errorf("%s is shown in %d steps of %s, want steps of %s", length, got.Count(), got.Step, want)
		}
	}
}

func TestATimeThatEndsBeforeItBeginsHasNoPast(t *testing.T) {
	t.Parallel()
	if got := violations.StepsFor(noon, noon.Add(-time.Hour)); got.Count() != 0 || !got.Since.Equal(noon) {
		t.Errorf("its steps are %+v, want none", got)
	}
}

func TestAnIDIsReadBack(t *testing.T) {
	t.Parallel()
	id := violations.ID{At: noon.Add(123456 * time.Microsecond), Number: 1 << 62}
	if got, err := violations.ParseID(id.String()); err != nil || got != id {
		t.Errorf("%s is read as %v (%v)", id, got, err)
	}
	for _, text := range []string{
		"", "-", "1", "1-", "-1", "1-0", "1--1", "x-1", "-5-1", "99999999999999999999-1",
		"253402300800000000-1", "1-1 ",
	} {
		if id, err := violations.ParseID(text); !errors.Is(err, rules.ErrNotFound) {
			t.Errorf("%q is read as %v (%v)", text, id, err)
		}
	}
}

func TestWhatIsWrongWithAnAlertIsSaidByField(t *testing.T) {
	t.Parallel()
	good := violations.Alert{
		Name: "a", Kind: violations.AlertDenials, Threshold: 1, Window: time.Minute,
		Format: violations.FormatWebhook, URL: "https://example.com/hook",
	}
	as := func(a *violations.Alert, format violations.Format, url, secret, email string) {
		a.SetFormat(format)
		a.SetURL(url)
		a.Secret, a.Email = secret, email
	}
	const key = "0123456789abcdef0123456789ABCDEF"
	tests := map[string]struct {
		change func(*violations.Alert)
		field  string
	}{
		"nothing":                   {func(*violations.Alert) {}, ""},
		"no name":                   {func(a *violations.Alert) { a.Name = "" }, "name"},
		"no threshold":              {func(a *violations.Alert) { a.Threshold = 0 }, "threshold"},
		"a window of seconds":       {func(a *violations.Alert) { a.Window = 90 * time.Second }, "window_minutes"},
		"a window of hours":         {func(a *violations.Alert) { a.Window = 61 * time.Minute }, "window_minutes"},
		"no URL":                    {func(a *violations.Alert) { a.URL = "" }, "url"},
		"a path":                    {func(a *violations.Alert) { a.URL = "/hook" }, "url"},
		"another scheme":            {func(a *violations.Alert) { a.URL = "file:///etc/passwd" }, "url"},
		"a URL without a host":      {func(a *violations.Alert) { a.URL = "https://:443/" }, "url"},
		"a password in the URL":     {func(a *violations.Alert) { a.URL = "https://me:secret@example.com/" }, "url"},
		"a URL with a control byte": {func(a *violations.Alert) { a.URL = "https://example.com/\n" }, "url"},
		"another kind":              {func(a *violations.Alert) { a.Kind = "moons" }, "kind"},
		"a share above all": {func(a *violations.Alert) {
			a.Kind, a.Threshold = violations.AlertNearLimit,
				101
		}, "threshold"},
		"subjects without counts": {func(a *violations.Alert) {
			a.Kind, a.PerSubject = violations.AlertDegraded,
				true
		}, "per"},
		"another format": {func(a *violations.Alert) { a.Format = "pigeon" }, "format"},
		"Slack": {func(a *violations.Alert) {
			as(a, violations.FormatSlack, "",
				"https://hooks.slack.com/x", "")
		}, ""},
		"Slack without a URL": {func(a *violations.Alert) { as(a, violations.FormatSlack, "", "", "") }, "url"},
		"PagerDuty": {func(a *violations.Alert) {
			as(a, violations.FormatPagerDuty,
				violations.PagerDutyURL, key, "")
		}, ""},
		"PagerDuty without a key": {func(a *violations.Alert) {
			as(a, violations.FormatPagerDuty,
				violations.PagerDutyURL, "", "")
		}, "routing_key"},
		"a key in two lines": {func(a *violations.Alert) {
			as(a, violations.FormatPagerDuty, violations.PagerDutyURL, key[:31]+"\n", "")
		}, "routing_key"},
		"mail":           {func(a *violations.Alert) { as(a, violations.FormatEmail, "", "", "ada@example.com") }, ""},
		"mail to nobody": {func(a *violations.Alert) { as(a, violations.FormatEmail, "", "", "") }, "email"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alert := good
			test.change(&alert)
			wrong := alert.Validate()
			if test.field == "" && len(wrong) == 0 {
				return
			}
			if len(wrong) != 1 || wrong[0].Field != test.field {
				t.Errorf("what is wrong is %v, want the %s", wrong, test.field)
			}
		})
	}
}
