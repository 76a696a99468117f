package mailer_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/mailer"
	"github.com/sluicegate/sluice/internal/notify/mailer/smtptest"
)

func invitation() *auth.Letter {
	return &auth.Letter{
		Mail:       auth.Mail{Kind: auth.MailInvitation, To: "grace@example.com"},
		TenantName: "Acme <b>&", InvitedBy: "ada@example.com", Role: auth.Editor, Token: "t0ken",
		ExpiresAt: time.Now().Add(time.Hour),
	}
}

func newSender(t *testing.T, server *smtptest.Server, change func(*mailer.Options)) *mailer.Sender {
	t.Helper()
	options := mailer.Options{
		Addr: server.Addr, TLS: mailer.StartTLS, From: "Sluice <sluice@example.com>", URL: "https://sluice.example.com",
		Trust: server.Trust, Timeout: time.Minute,
	}
	change(&options)
	sender, err := mailer.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

func TestALetterArrives(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		server  smtptest.Options
		options func(*mailer.Options)
	}{
		"by STARTTLS": {smtptest.Options{}, func(*mailer.Options) {}},
		"by TLS":      {smtptest.Options{ImplicitTLS: true}, func(o *mailer.Options) { o.TLS = mailer.TLS }},
		"unencrypted": {smtptest.Options{Plain: true}, func(o *mailer.Options) { o.TLS = mailer.NoTLS }},
		"after authentication": {
			smtptest.Options{User: "sluice", Password: "s3cret"},
			func(o *mailer.Options) { o.User, o.Password = "sluice", "s3cret" },
		},
		"after that and by TLS": {
			smtptest.Options{ImplicitTLS: true, User: "u", Password: "p"},
			func(o *mailer.Options) { o.TLS, o.User, o.Password = mailer.TLS, "u", "p" },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := smtptest.New(t, test.server)
			if err := newSender(t, server, test.options).Send(t.Context(), invitation()); err != nil {
				t.Fatal(err)
			}
			sent := server.Messages()
			if len(sent) != 1 || sent[0].To != "grace@example.com" || sent[0].From != "sluice@example.com" ||
				sent[0].Encrypted == test.server.Plain {
				t.Fatalf("the server has %+v", sent)
			}
			const link = "https://sluice.example.com/invitation#t0ken"
			if !strings.Contains(sent[0].Plain, link) || !strings.Contains(sent[0].HTML, `href="`+link+`"`) ||
				sent[0].Token() != "t0ken" {
				t.Errorf("the link is missing in\n%s\n%s", sent[0].Plain, sent[0].HTML)
			}
			if !strings.Contains(sent[0].Plain, "Acme <b>&") || !strings.Contains(sent[0].HTML, "Acme &lt;b&gt;&amp;") {
				t.Errorf("the tenant's name is not as it should be in\n%s\n%s", sent[0].Plain, sent[0].HTML)
			}
		})
	}
}

func TestANoticeSaysWhereItCameFromIfThatIsKnown(t *testing.T) {
	t.Parallel()
	server := smtptest.New(t, smtptest.Options{})
	sender := newSender(t, server, func(*mailer.Options) {})
	for ip, want := range map[string]string{
		"203.0.113.9": " From: 203.0.113.9. Browser: Lynx/2.8.",
		"":            " UTC. Browser: Lynx/2.8.",
	} {
		letter := &auth.Letter{Mail: auth.Mail{
			Kind: auth.MailNotice, To: "grace@example.com", CreatedAt: time.Now(),
			Facts: map[string]string{"notice": string(auth.NoticePassword), "browser": "Lynx/2.8", "ip": ip},
		}}
		if err := sender.Send(t.Context(), letter); err != nil {
			t.Fatal(err)
		}
		sent := server.Messages()
		if last := sent[len(sent)-1]; !strings.Contains(last.Plain, want) {
			t.Errorf("from %q it says\n%s", ip, last.Plain)
		}
	}
}

func TestWhatIsRefusedForGood(t *testing.T) {
	t.Parallel()
	answer := func(code int) func(*smtptest.Server) {
		return func(s *smtptest.Server) {
			s.Refuse(func(string) error { return &smtp.SMTPError{Code: code, Message: "the mailbox is not here"} })
		}
	}
	tests := map[string]struct {
		options smtptest.Options
		server  func(*smtptest.Server)
		sender  func(*mailer.Options)
		final   bool
	}{
		"an unknown mailbox":     {server: answer(550), final: true},
		"a mailbox that is busy": {server: answer(451)},
		"a wrong password": {
			options: smtptest.Options{User: "u", Password: "p"},
			sender:  func(o *mailer.Options) { o.User, o.Password = "u", "wrong" },
		},
		"a server without STARTTLS": {options: smtptest.Options{Plain: true}},
		"a stranger's certificate":  {sender: func(o *mailer.Options) { o.Trust = nil }},
		"a server that hangs": {
			server: func(s *smtptest.Server) { s.Hang(true) },
			sender: func(o *mailer.Options) { o.Timeout = 300 * time.Millisecond },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := smtptest.New(t, test.options)
			if test.server != nil {
				test.server(server)
			}
			sender := newSender(t, server, func(o *mailer.Options) {
				if test.sender != nil {
					test.sender(o)
				}
			})
			err := sender.Send(t.Context(), invitation())
			if err == nil || errors.Is(err, auth.ErrMailRefused) != test.final || len(server.Messages()) != 0 {
				t.Errorf("sending is %v, want final: %v", err, test.final)
			}
			if err != nil && strings.Contains(err.Error(), "wrong") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}
