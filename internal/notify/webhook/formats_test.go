package webhook_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// vendor is a server that judges bodies as a vendor does: it answers 400 and keeps the reason.
type vendor struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	wrong  []error
}

func newVendor(t *testing.T, accepted int, judge func(*http.Request, []byte) error) *vendor {
	t.Helper()
	v := &vendor{}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		err := judge(r, body)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.bodies = append(v.bodies, string(body))
		if err != nil {
			v.wrong = append(v.wrong, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(accepted)
	}))
	t.Cleanup(v.Close)
	return v
}

func (v *vendor) accept(t *testing.T, accepted int, n *violations.Notice) string {
	t.Helper()
	sender := webhook.New(webhook.Options{Allow: loopback, UI: func() string { return "https://sluice.example.com" }})
	status, err := sender.Send(t.Context(), n)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil || status != accepted {
		t.Fatalf("status %d, error %v: %v", status, err, v.wrong)
	}
	return v.bodies[len(v.bodies)-1]
}

func judgeSlack(r *http.Request, body []byte) error {
	type part struct{ Type, Text string }
	var m struct {
		Text   string
		Blocks []struct {
			Type     string
			Text     *part
			Elements []part
		}
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return err
	}
	var wrong []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	within := func(text string, most int) bool { n := utf8.RuneCountInString(text); return n > 0 && n <= most }
	want(r.Header.Get("Content-Type") == "application/json", "the type is %s", r.Header.Get("Content-Type"))
	want(r.Header.Get("Sluice-Signature") == "", "it is signed, and the secret is the URL")
	want(within(m.Text, 40_000), "the text has %d characters", len(m.Text))
	want(len(m.Blocks) > 0 && len(m.Blocks) <= 50, "%d blocks", len(m.Blocks))
	for _, b := range m.Blocks {
		switch b.Type {
		case "header":
			want(b.Text != nil && b.Text.Type == "plain_text" && within(b.Text.Text, 150), "the header is %+v", b.Text)
		case "section":
			want(b.Text != nil && within(b.Text.Text, 3000), "the section is %+v", b.Text)
		case "context":
			want(len(b.Elements) > 0 && len(b.Elements) <= 10, "the context has %d elements", len(b.Elements))
		default:
			want(false, "a block of the type %q", b.Type)
		}
	}
	return errors.Join(wrong...)
}

func judgePagerDuty(_ *http.Request, body []byte) error {
	var e struct {
		RoutingKey  string `json:"routing_key"`
		EventAction string `json:"event_action"`
		DedupKey    string `json:"dedup_key"`
		Payload     struct {
			Summary, Source, Severity, Timestamp string
			Details                              map[string]any `json:"custom_details"`
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return err
	}
	_, stampErr := time.Parse(time.RFC3339Nano, e.Payload.Timestamp)
	var wrong []error
	for what, ok := range map[string]bool{
		"routing_key": len(e.RoutingKey) == 32, "event_action": e.EventAction == "trigger",
		"dedup_key": e.DedupKey != "" && len(e.DedupKey) <= 255,
		"summary":   e.Payload.Summary != "" && utf8.RuneCountInString(e.Payload.Summary) <= 1024,
		"source":    e.Payload.Source != "", "timestamp": stampErr == nil, "custom_details": len(e.Payload.Details) > 0,
		"severity": regexp.MustCompile(`^(critical|error|warning|info)$`).MatchString(e.Payload.Severity),
		"size":     len(body) <= 512<<10,
	} {
		if !ok {
			wrong = append(wrong, fmt.Errorf("%s of %s", what, body))
		}
	}
	return errors.Join(wrong...)
}

const routingKey = "0123456789abcdef0123456789ABCDEF"

func longest(format violations.Format, url string) *violations.Notice {
	n := noticeTo("")
	n.Pattern = "user:{user_id}:endpoint:" + strings.Repeat("/äöü", 300)
	n.Subject = strings.Repeat("<!channel> & *all* ", 60)
	n.Of.Name, n.Of.Format = strings.Repeat("<@U1>ä", 16), format
	if format == violations.FormatSlack {
		n.Of.SetURL(url)
	} else {
		n.Of.URL, n.Of.Secret = url, routingKey
	}
	return n
}

func TestSlackAcceptsAlerts(t *testing.T) {
	t.Parallel()
	slack := newVendor(t, http.StatusOK, judgeSlack)
	n := noticeTo("")
	n.Pattern, n.Detail, n.Of.Format = "user:{user_id}", "daily · pro", violations.FormatSlack
	n.Of.SetURL(slack.URL + "/services/T0/B0/hush")
	if n.Of.URL != slack.URL+"/…hush" || n.Of.Target() != slack.URL+"/services/T0/B0/hush" {
		t.Errorf("the alert shows the URL %s and posts to %s", n.Of.URL, n.Of.Target())
	}
	body := slack.accept(t, http.StatusOK, n)
	for _, want := range []string{
		"one customer is hammering", "The rule “Each user · daily · pro” denied 1,200 checks of one subject within " +
			"5 minutes.", `Subject: 42`,
		`https://sluice.example.com/t/acme/settings/alerts?entry=5`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is not in %s", want, body)
		}
	}
	body = slack.accept(t, http.StatusOK, longest(violations.FormatSlack, slack.URL))
	var m struct{ Text string }
	if err := json.Unmarshal([]byte(body), &m); err != nil || strings.ContainsAny(m.Text, "<>") {
		t.Errorf("the text could mention people: %s", m.Text)
	}
	n.Mode = rules.ModeShadow
	if body = slack.accept(t, http.StatusOK, n); !strings.Contains(body, "would have denied 1,200 checks of one "+
		"subject within 5 minutes (shadow).") {
		t.Errorf("an alert of a shadow rule is sent as %s", body)
	}
	n.Test = true
	if body = slack.accept(t, http.StatusOK, n); !strings.Contains(body, "This is a test") ||
		strings.Contains(body, "denied") {
		t.Errorf("a test is sent as %s", body)
	}
}

func TestPagerDutyAcceptsAlertsAndMakesOneIncidentOfEachSubject(t *testing.T) {
	t.Parallel()
	pagerDuty := newVendor(t, http.StatusAccepted, judgePagerDuty)
	send := func(change func(*violations.Notice)) (dedup, severity string) {
		t.Helper()
		n := noticeTo(pagerDuty.URL)
		n.Pattern, n.Of.Format, n.Of.Secret = "user:{user_id}", violations.FormatPagerDuty, routingKey
		change(n)
		var e struct {
			DedupKey string `json:"dedup_key"`
			Payload  struct{ Severity string }
		}
		if err := json.Unmarshal([]byte(pagerDuty.accept(t, http.StatusAccepted, n)), &e); err != nil {
			t.Fatal(err)
		}
		return e.DedupKey, e.Payload.Severity
	}
	first, severity := send(func(*violations.Notice) {})
	if severity != "error" {
		t.Errorf("the severity is %s", severity)
	}
	if again, _ := send(func(n *violations.Notice) { n.ID, n.Denied = 72, 3000 }); again != first {
		t.Errorf("a later delivery about the same subject has the key %s, want %s", again, first)
	}
	for name, change := range map[string]func(*violations.Notice){
		"another subject": func(n *violations.Notice) { n.Subject = "43" },
		"another alert":   func(n *violations.Notice) { n.Of.ID = 6 },
		"another tenant":  func(n *violations.Notice) { n.TenantSlug = "other" },
		"a test":          func(n *violations.Notice) { n.Test = true },
	} {
		if other, _ := send(change); other == first {
			t.Errorf("%s has the same key", name)
		}
	}
	if _, severity := send(func(n *violations.Notice) { n.Mode = rules.ModeShadow }); severity != "warning" {
		t.Errorf("an alert of a shadow rule has the severity %s", severity)
	}
	if _, severity := send(func(n *violations.Notice) { n.Test = true }); severity != "info" {
		t.Errorf("a test has the severity %s", severity)
	}
	pagerDuty.accept(t, http.StatusAccepted, longest(violations.FormatPagerDuty, pagerDuty.URL))
}

func TestEveryFormatIsRefusedInsideTheNetwork(t *testing.T) {
	t.Parallel()
	for _, format := range []violations.Format{
		violations.FormatWebhook, violations.FormatSlack,
		violations.FormatPagerDuty,
	} {
		if _, err := webhook.New(webhook.Options{}).Send(t.Context(),
			longest(format, "http://127.0.0.1:1/")); !errors.Is(err, webhook.ErrForbidden) {
			t.Errorf("%s: the error is %v", format, err)
		}
	}
	if _, err := webhook.New(webhook.Options{}).Send(t.Context(),
		longest("carrier pigeon", "https://example.com/")); err == nil {
		t.Error("an unknown format is sent")
	}
}
