package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// Limits of Slack and PagerDuty, in characters.
const (
	slackHeader      = 150
	slackText        = 3000
	pagerDutySummary = 1024
	shownSubject     = 200 // more than any usual id has
)

func (s *Sender) bodyOf(n *violations.Notice) (body []byte, secret string, err error) {
	switch n.Of.Format {
	case violations.FormatWebhook:
		body, err = json.Marshal(messageOf(n))
		return body, n.Of.Secret, err
	case violations.FormatSlack:
		body, err = json.Marshal(s.slackOf(n))
	case violations.FormatPagerDuty:
		body, err = json.Marshal(s.pagerDutyOf(n))
	case violations.FormatEmail:
		err = fmt.Errorf("the format %q is not posted", n.Of.Format)
	default:
		err = fmt.Errorf("this version does not know the format %q", n.Of.Format)
	}
	return body, "", err
}

// https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
type slackMessage struct {
	Text   string       `json:"text"` // for notifications, and for chats without blocks
	Blocks []slackBlock `json:"blocks"`
}

type slackBlock struct {
	Type     string       `json:"type"`
	Text     *slackPart   `json:"text,omitempty"`
	Elements []*slackPart `json:"elements,omitempty"`
}

type slackPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// slackOf shows texts of tenants and of their users as plain text, so that they mention nobody and link nowhere.
func (s *Sender) slackOf(n *violations.Notice) slackMessage {
	plain := func(text string, most int) *slackPart { return &slackPart{"plain_text", cut(text, most)} }
	said := n.Summary()
	if subject := subjectOf(n); subject != "" {
		said += "\nSubject: " + subject
	}
	where := escapeSlack(n.TenantSlug) + " · " + n.RaisedAt.UTC().Format("2 Jan 2006 15:04 MST")
	if page := s.pageOf(n); page != "" {
		where += " · <" + page + "|Open the alert>"
	}
	return slackMessage{
		Text: escapeSlack(cut(n.Of.Name+": "+n.Summary(), slackText/5)), // an escape has five characters at most
		Blocks: []slackBlock{
			{Type: "header", Text: plain(n.Of.Name, slackHeader)},
			{Type: "section", Text: plain(said, slackText)},
			{Type: "context", Elements: []*slackPart{{"mrkdwn", where}}},
		},
	}
}

func escapeSlack(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// https://developer.pagerduty.com/docs/events-api-v2/trigger-events/
type pagerDutyEvent struct {
	RoutingKey string           `json:"routing_key"`
	Action     string           `json:"event_action"`
	DedupKey   string           `json:"dedup_key"`
	Client     string           `json:"client"`
	ClientURL  string           `json:"client_url,omitempty"`
	Payload    pagerDutyPayload `json:"payload"`
}

type pagerDutyPayload struct {
	Summary   string    `json:"summary"`
	Source    string    `json:"source"`
	Severity  string    `json:"severity"`
	Timestamp time.Time `json:"timestamp"`
	Component string    `json:"component"`
	Class     string    `json:"class"`
	Details   message   `json:"custom_details"`
}

// pagerDutyOf makes one incident of all deliveries of an alert about the same rule and subject.
func (s *Sender) pagerDutyOf(n *violations.Notice) pagerDutyEvent {
	severity, dedup := "error", fmt.Sprintf("sluice-%s-alert-%d", n.TenantSlug, n.Of.ID)
	if n.Rule != 0 {
		dedup += fmt.Sprintf("-rule-%d", n.Rule)
	}
	if n.Of.PerSubject && !n.Test {
		digest := sha256.Sum256([]byte(n.Subject)) // subjects can be longer than keys, and hold anything
		dedup += "-" + hex.EncodeToString(digest[:16])
	}
	if n.Mode == rules.ModeShadow {
		severity = "warning"
	}
	if n.Test {
		severity, dedup = "info", dedup+"-test-"+strconv.FormatInt(n.ID, 10)
	}
	said := n.Of.Name + ": " + n.Summary()
	if subject := subjectOf(n); subject != "" {
		said += " Subject: " + subject
	}
	details := messageOf(n)
	return pagerDutyEvent{
		RoutingKey: n.Of.Secret, Action: "trigger", DedupKey: dedup, Client: "Sluice", ClientURL: s.pageOf(n),
		Payload: pagerDutyPayload{
			Summary: cut(said, pagerDutySummary), Source: "sluice/" + n.TenantSlug, Severity: severity,
			Timestamp: n.RaisedAt.UTC(),
			Component: cut(n.Pattern, pagerDutySummary), Class: details.Type, Details: details,
		},
	}
}

func (s *Sender) pageOf(n *violations.Notice) string {
	if s.options.UI == nil || s.options.UI() == "" {
		return ""
	}
	return fmt.Sprintf("%s/t/%s/settings/alerts?entry=%d", s.options.UI(), n.TenantSlug, n.Of.ID)
}

func subjectOf(n *violations.Notice) string {
	if !n.Of.PerSubject || n.Test {
		return ""
	}
	return cut(n.Subject, shownSubject)
}

func cut(text string, most int) string {
	if characters := []rune(text); len(characters) > most {
		return string(characters[:most-1]) + "…"
	}
	return text
}
