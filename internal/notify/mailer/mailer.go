// Package mailer sends auth's letters by SMTP.
//
// Each letter is a connection of its own, with a deadline over all of it. An answer of 5xx to the letter is final
// (auth.ErrMailRefused); everything else, such as wrong credentials, which an operator may correct, is tried again.
package mailer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	mail "github.com/wneessen/go-mail"

	"github.com/sluicegate/sluice/internal/auth"
)

// How a connection is encrypted.
const (
	StartTLS = "starttls" // begins in the clear; a server without STARTTLS is refused
	TLS      = "tls"      // from the first byte
	NoTLS    = "none"
)

// Options of a Sender.
type Options struct {
	Addr     string // host:port of the mail server
	TLS      string // StartTLS, TLS or NoTLS
	User     string // "" for no authentication
	Password string
	From     string        // the address, or Name <address>
	URL      string        // of the web UI, without a slash at its end
	Timeout  time.Duration // of a letter; default 20 s
	Trust    *tls.Config   // nil trusts the operating system's authorities
}

// Sender sends letters. Safe for concurrent use.
type Sender struct {
	options Options
	host    string
	port    int
}

var _ auth.MailSender = (*Sender)(nil)

// New returns a Sender, without connecting.
func New(options Options) (*Sender, error) {
	host, port, err := net.SplitHostPort(options.Addr)
	if err != nil {
		return nil, fmt.Errorf("read the mail server's address: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("read the mail server's port: %w", err)
	}
	if err := mail.NewMsg().From(options.From); err != nil {
		return nil, fmt.Errorf("read the sender's address: %w", err)
	}
	if options.Timeout == 0 {
		options.Timeout = 20 * time.Second
	}
	return &Sender{options: options, host: host, port: int(number)}, nil
}

// Send hands a letter to the mail server.
func (s *Sender) Send(ctx context.Context, letter *auth.Letter) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	message, err := s.write(letter)
	if err != nil {
		return fmt.Errorf("write the letter: %w: %w", err, auth.ErrMailRefused)
	}
	client, err := s.client()
	if err != nil {
		return fmt.Errorf("prepare a connection to the mail server: %w", err)
	}
	if err := client.DialAndSendWithContext(ctx, message); err != nil {
		return judge(err)
	}
	return nil
}

func (s *Sender) client() (*mail.Client, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.options.Trust != nil {
		trust = s.options.Trust.Clone()
	}
	trust.ServerName = s.host
	options := []mail.Option{mail.WithPort(s.port), mail.WithTimeout(s.options.Timeout), mail.WithTLSConfig(trust)}
	switch s.options.TLS {
	case TLS:
		options = append(options, mail.WithSSL())
	case NoTLS:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	default:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	}
	if s.options.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover),
			mail.WithUsername(s.options.User), mail.WithPassword(s.options.Password))
	}
	return mail.NewClient(s.host, options...)
}

func (s *Sender) write(letter *auth.Letter) (*mail.Msg, error) {
	words, err := s.words(letter)
	if err != nil {
		return nil, err
	}
	plain, html, err := words.render()
	if err != nil {
		return nil, err
	}
	message := mail.NewMsg()
	if err := message.From(s.options.From); err != nil {
		return nil, err
	}
	if err := message.To(letter.To); err != nil {
		return nil, err
	}
	message.Subject(words.Subject)
	message.SetDate()
	message.SetMessageID()
	message.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: no vacation replies
	message.SetBodyString(mail.TypeTextPlain, plain)
	message.AddAlternativeString(mail.TypeTextHTML, html)
	return message, nil
}

// judge marks a refusal of the recipient or the letter as final.
func judge(err error) error {
	var refused *mail.SendError
	if errors.As(err, &refused) && refused.ErrorCode() >= 500 &&
		(refused.Reason == mail.ErrSMTPRcptTo || refused.Reason == mail.ErrSMTPDataClose) {
		return fmt.Errorf("%w: %w", err, auth.ErrMailRefused)
	}
	return err
}
