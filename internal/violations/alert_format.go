package violations

import (
	"fmt"
	"regexp"

	"github.com/sluicegate/sluice/internal/rules"
)

// Format is the receiver's protocol.
type Format string

// The formats of alerts.
const (
	FormatWebhook   Format = "webhook"   // signed JSON to any URL
	FormatSlack     Format = "slack"     // an incoming webhook of Slack or a compatible chat
	FormatPagerDuty Format = "pagerduty" // PagerDuty's Events API v2
	FormatEmail     Format = "email"     // to a member of the tenant
)

// PagerDutyURL is the default URL for events. The service region in Europe has another one.
const PagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

var routingKey = regexp.MustCompile(`^[0-9A-Za-z]{32}$`)

// Target returns the URL for posts; "" for mail.
func (a *Alert) Target() string {
	if a.Format == FormatSlack {
		return a.Secret
	}
	return a.URL
}

// SetFormat changes the format, and clears the former one's destination.
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

// SetURL changes the URL for posts, unless it is the ShownURL. For Slack the URL is the secret, because anyone who
// knows it can post. For PagerDuty the routing key is dropped, because it would be posted to the new URL.
func (a *Alert) SetURL(target string) {
	if target == a.ShownURL() {
		return
	}
	a.URL = target
	switch a.Format {
	case FormatSlack:
		a.URL, a.Secret = rules.ShownURL(target), target
	case FormatPagerDuty:
		a.Secret, a.SecretIsClosed = "", false
	case FormatWebhook, FormatEmail:
	}
}

// ShownURL returns the URL without its secrets; see rules.ShownURL.
func (a *Alert) ShownURL() string {
	if a.Format == FormatSlack {
		return a.URL
	}
	return rules.ShownURL(a.URL)
}

func (a *Alert) wrongDestination() (wrong rules.FieldErrors) {
	if a.SecretIsClosed && a.Secret == "" {
		return nil // it was valid when stored, and must be possible to turn off
	}
	switch a.Format {
	case FormatWebhook, FormatSlack:
		wrong.Add("url", rules.WrongWebhookURL(a.Target()))
	case FormatPagerDuty:
		wrong.Add("url", rules.WrongWebhookURL(a.URL))
		if !routingKey.MatchString(a.Secret) {
			wrong.Add("routing_key", "must be the integration key of a service of PagerDuty, given again with another "+
				"url: 32 letters and digits")
		}
	case FormatEmail:
		if a.Email == "" {
			wrong.Add("email", "must be the address of a member of the tenant")
		}
	default:
		wrong.Add("format", fmt.Sprintf("must be %s, %s, %s or %s", FormatWebhook, FormatSlack, FormatPagerDuty,
			FormatEmail))
	}
	return wrong
}
