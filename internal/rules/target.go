package rules

import (
	"fmt"
	"net/url"
	"strings"
)

const maxWebhookURL = 2048 // bytes

// WrongWebhookURL returns the mistake in a webhook's URL, or "".
func WrongWebhookURL(text string) string {
	target, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxWebhookURL || target.Scheme != "https" && target.Scheme != "http" ||
		target.Hostname() == "":
		return fmt.Sprintf("must be a URL such as https://example.com/hooks, of at most %d bytes", maxWebhookURL)
	case target.User != nil:
		return "must not contain a password; put a receiver's token into the path or the query, which nobody is shown"
	case strings.Contains(text, unshown):
		return "must be the whole URL, in which " + unshown + " stands for what is not shown"
	}
	return ""
}

const unshown = "…"

// ShownURL hides secrets, which may be anywhere after the host of a webhook's URL: it leaves the last four characters,
// unless they are most of the rest.
func ShownURL(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL {
		return ""
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 || rest[end:] == "/" {
		return text
	}
	shown := scheme + "://" + rest[:end] + "/" + unshown
	const last = 4
	if hidden := []rune(rest[end+1:]); len(hidden) >= 2*last {
		shown += string(hidden[len(hidden)-last:])
	}
	return shown
}
