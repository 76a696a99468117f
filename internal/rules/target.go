package rules

import (
	"fmt"
	"net/url"
)

const maxWebhookURL = 2048 // bytes

// WrongWebhookURL returns what is wrong with the form of a webhook's URL, or "".
func WrongWebhookURL(text string) string {
	target, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxWebhookURL || target.Scheme != "https" && target.Scheme != "http" || target.Hostname() == "":
		return fmt.Sprintf("must be a URL such as https://example.com/hooks, of at most %d bytes", maxWebhookURL)
	case target.User != nil:
		return "must not contain a password, because every member can read it"
	}
	return ""
}
