package auth

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestAFloodFillsOnlyItsPartOfTheLog(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	log := NewAccessLog(nil, slog.New(slog.NewTextHandler(&text, nil)), func() time.Time { return now })
	failed := func(ip, agent string) {
		log.Note(AccessEvent{Kind: AccessSignInFailed, IP: netip.MustParseAddr(ip), UserAgent: agent})
	}
	for range 1000 {
		failed("203.0.113.7", "the same")
	}
	for n := range 1000 { // one network with changing browsers
		failed("203.0.113.7", fmt.Sprint(n))
	}
	for n := range 1000 { // many networks
		failed(fmt.Sprintf("2001:db8:%x::1", n), "")
	}
	log.Note(AccessEvent{
		Kind: AccessSignedIn, Account: 7, Who: "ada@example.com",
		IP: netip.MustParseAddr("198.51.100.1"),
	})
	log.Flush(t.Context())
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if want := accessOfAll + 2; len(lines) != want { // the overflow of the failures, and the sign-in
		t.Errorf("%d lines were logged, want %d", len(lines), want)
	}
	for _, want := range []string{
		`event=sign_in_failed count=1000 account_id=0 who="" key_id="" tenant="" ip=203.0.113.7`,
		`event=signed_in count=1 account_id=7 who=ada@example.com`,
		fmt.Sprintf("event=sign_in_failed count=%d", 3000-1000-(accessOfAll-1)),
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no line has %s", want)
		}
	}
	text.Reset()
	now = now.Add(time.Minute)
	failed("203.0.113.7", "another")
	log.Flush(t.Context())
	if !strings.Contains(text.String(), "user_agent=another") {
		t.Errorf("a minute later the log has %s", text.String())
	}
}

func TestAStrangerWritesNoLineOfTheLog(t *testing.T) {
	t.Parallel()
	const forged = "curl\nlevel=INFO msg=access event=signed_in " +
		"who=ada@example.com\r\n\x1b[2K\"}\n{\"event\":\"signed_in\"}"
	for name, handler := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		var text bytes.Buffer
		log := NewAccessLog(nil, slog.New(handler(&text)), time.Now)
		log.Note(AccessEvent{
			Kind: AccessSignInFailed, IP: netip.MustParseAddr("203.0.113.7"), UserAgent: forged,
			Detail: forged, Who: forged, Tenant: forged,
		})
		log.Flush(t.Context())
		if lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n"); len(lines) != 1 ||
			strings.ContainsAny(lines[0], "\r\x1b") {
			t.Errorf("as %s the log is %q, want one line of visible characters", name, text.String())
		}
	}
}
