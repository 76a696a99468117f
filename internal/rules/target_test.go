package rules_test

import (
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestWhatIsShownOfAWebhookURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://hooks.example.com/services/T0/B0/hushhush": "https://hooks.example.com/…hush",
		"https://hooks.example.com:8443?token=hushhush":     "https://hooks.example.com:8443/…hush",
		"https://hooks.example.com#hushhush":                "https://hooks.example.com/…hush",
		"http://[2001:db8::1]/hooks/ключключ":               "http://[2001:db8::1]/…ключ",
		"https://example.com":                               "https://example.com",
		"https://example.com/":                              "https://example.com/",
		// the last four characters would be all of it
		"https://example.com/hush":     "https://example.com/…",
		"https://example.com/hushhus":  "https://example.com/…",
		"https://example.com/hushhush": "https://example.com/…hush",
		"hush":                         "",
		"":                             "",
	} {
		if got := rules.ShownURL(url); got != want {
			t.Errorf("of %q is shown %q, want %q", url, got, want)
		}
	}
	if rules.WrongWebhookURL("https://example.com/…hush") == "" {
		t.Error("a URL as it is shown is taken for a whole one")
	}
}
