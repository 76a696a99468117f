package enforce

import (
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestAKeyHasOneText(t *testing.T) {
	t.Parallel()
	for text, key := range map[string]Key{
		"12:42":                 {Tenant: 1, Rule: 12, Subject: "42"},
		"3:":                    {Tenant: 1, Rule: 3},
		"7:2:42,11:/api/search": {Tenant: 1, Rule: 7, Subject: "2:42,11:/api/search"},
		"1::":                   {Tenant: 1, Rule: 1, Subject: ":"},
		"1:\xff\x00":            {Tenant: 1, Rule: 1, Subject: "\xff\x00"},
		"9223372036854775807:a": {Tenant: 1, Rule: 1<<63 - 1, Subject: "a"},
	} {
		if got := key.Text(); got != text {
			t.Errorf("%+v is written %q, want %q", key, got, text)
		}
		if got, err := ParseKey(1, text); err != nil || got != key {
			t.Errorf("%q is read as %+v, %v", text, got, err)
		}
	}
}

func TestTextsThatAreNoKeyAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ":", ":42", "12", "+12:42", "012:42", "-0:42", " 12:42", "12 :42", "1_2:42", "0x1:42", "x:42",
		"9223372036854775808:a",
	} {
		if key, err := ParseKey(1, text); err == nil {
			t.Errorf("%q is read as %+v", text, key)
		}
	}
}

func FuzzKeyTexts(f *testing.F) {
	f.Add(int64(12), "42", "012:42")
	f.Add(int64(7), "2:42,11:/api/search", "7:2:42,11:/api/search")
	f.Add(int64(-1), "", ":")
	f.Fuzz(func(t *testing.T, rule int64, subject, text string) {
		key := Key{Tenant: 1, Rule: rules.RuleID(rule), Subject: subject}
		if got, err := ParseKey(1, key.Text()); err != nil || got != key {
			t.Errorf("%+v is read back as %+v, %v", key, got, err)
		}
		if got, err := ParseKey(1, text); err == nil && got.Text() != text {
			t.Errorf("%q is read as %+v, which is written %q", text, got, got.Text())
		}
	})
}
