package violations

import (
	"fmt"
	"net/url"
	"regexp"

	"github.com/sluicegate/sluice/internal/rules"
)

// Format is how an alert is sent.
type Format string

// The formats of alerts.
const (
	FormatWebhook   Format = "webhook"   // signed JSON to any URL
	FormatSlack     Format = "slack"     // to an incoming webhook of Slack, or of a chat that understands the same
	FormatPagerDuty Format = "pagerduty" // to PagerDuty's Events API v2
	FormatEmail     Format = "email"     // to a member of the tenant
)

// PagerDutyURL is where events go unless an alert says otherwise, for example to PagerDuty's service region in Europe.
const PagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// routingKey is the form of PagerDuty's integration keys.
var routingKey = regexp.MustCompile(`^[0-9A-Za-z]{32}$`)

// Target returns the URL that deliveries are posted to; "" for mail.
func (a *Alert) Target() string {
	if a.Format == FormatSlack {
		return a.Secret
	}
	return a.URL
}

// SetFormat changes the format, and forgets the destination of the former one.
func (a *Alert) SetFormat(format Format) {
	if a.Format == format {
		return
	}
	a.Format, a.URL, a.Email, a.Secret, a.SecretIsClosed = format, "", "", "", false
	switch format {
	case FormatWebhook:
		a.Secret = NewWebhookSecret()
	case FormatPagerDuty:
		a.URL = PagerDutyURL
	case FormatSlack, FormatEmail:
	}
}

// SetURL changes where deliveries are posted to. Anyone who knows the URL of a Slack webhook can post to its channel, so that
// URL becomes the secret, and members see only its host. A URL as members see it changes nothing.
func (a *Alert) SetURL(target string) {
	if target == a.URL {
		return
	}
	a.URL = target
	if a.Format == FormatSlack {
		a.URL, a.Secret = hostOf(target), target
	}
}

// hostOf returns a URL without what follows its host.
func hostOf(target string) string {
	at, err := url.Parse(target)
	if err != nil || at.Host == "" {
		return ""
	}
	return at.Scheme + "://" + at.Host + "/…"
}

// wrongDestination returns what is wrong with where the alert is sent.
func (a *Alert) wrongDestination() (wrong rules.FieldErrors) {
	if a.SecretIsClosed && a.Secret == "" {
		return nil // it was judged when it was stored, and can be turned off
	}
	switch a.Format {
	case FormatWebhook, FormatSlack:
		wrong.Add("url", rules.WrongWebhookURL(a.Target()))
	case FormatPagerDuty:
		wrong.Add("url", rules.WrongWebhookURL(a.URL))
		if !routingKey.MatchString(a.Secret) {
			wrong.Add("routing_key", "must be the integration key of a service of PagerDuty: 32 letters and digits")
		}
	case FormatEmail:
		if a.Email == "" {
			wrong.Add("email", "must be the address of a member of the tenant")
		}
	default:
		wrong.Add("format", fmt.Sprintf("must be %s, %s, %s or %s", FormatWebhook, FormatSlack, FormatPagerDuty, FormatEmail))
	}
	return wrong
}
