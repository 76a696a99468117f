// Package smtptest runs a real SMTP server on loopback for tests.
package smtptest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/sluicegate/sluice/internal/certs/certstest"
)

// Options of a Server.
type Options struct {
	ImplicitTLS    bool // TLS from the first byte; otherwise STARTTLS is offered
	Plain          bool // neither
	User, Password string
}

// Message is a message that the server has taken.
type Message struct {
	From, To, Subject string
	Plain, HTML       string
	Encrypted         bool
}

var link = regexp.MustCompile(`https?://\S+#\S+`)

// Token returns the token of the message's link.
func (m Message) Token() string {
	_, token, _ := strings.Cut(link.FindString(m.Plain), "#")
	return token
}

// Server is a mail server.
type Server struct {
	Addr  string
	Trust *tls.Config // trusts the server's certificate

	options  Options
	mu       sync.Mutex
	messages []Message
	refuse   func(to string) error
	hang     chan struct{} // non-nil: the greeting waits for it
}

// New starts a server that ends with the test.
func New(t testing.TB, options Options) *Server {
	t.Helper()
	authority := certstest.New(t)
	pair := authority.Valid(t, "mail")
	certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{options: options, Trust: authority.Client(t, certstest.Pair{})}
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		s.mu.Lock()
		hang := s.hang
		s.mu.Unlock()
		if hang != nil {
			<-hang
		}
		_, encrypted := c.TLSConnectionState()
		return &session{server: s, encrypted: encrypted}, nil
	}))
	server.Domain, server.AllowInsecureAuth = "localhost", true
	server.ReadTimeout, server.WriteTimeout = 30*time.Second, 30*time.Second
	server.ErrorLog = silent{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = listener.Addr().String()
	serve := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	switch {
	case options.ImplicitTLS:
		listener = tls.NewListener(listener, serve)
	case !options.Plain:
		server.TLSConfig = serve
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		s.Hang(false)
		_ = server.Close()
		serving.Wait()
	})
	return s
}

// Messages returns the messages sent up to now.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// Refuse makes the server ask a function about each recipient; nil takes all.
func (s *Server) Refuse(refuse func(to string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// Hang makes the server accept connections and say nothing, or ends that.
func (s *Server) Hang(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && s.hang == nil {
		s.hang = make(chan struct{})
	} else if !on && s.hang != nil {
		close(s.hang)
		s.hang = nil
	}
}

type session struct {
	server    *Server
	encrypted bool
	isIn      bool
	message   Message
}

var _ smtp.AuthSession = (*session)(nil)

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.server.options.User || password != s.server.options.Password {
			return smtp.ErrAuthFailed
		}
		s.isIn = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.server.options.User != "" && !s.isIn {
		return smtp.ErrAuthRequired
	}
	s.message = Message{From: from, Encrypted: s.encrypted}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.server.mu.Lock()
	refuse := s.server.refuse
	s.server.mu.Unlock()
	if refuse != nil {
		if err := refuse(to); err != nil {
			return err
		}
	}
	s.message.To = to
	return nil
}

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.message.read(raw); err != nil {
		return err
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.messages = append(s.server.messages, s.message)
	return nil
}

func (*session) Reset()        {}
func (*session) Logout() error { return nil }

func (m *Message) read(raw []byte) error {
	parsed, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if m.Subject, err = new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject")); err != nil {
		return err
	}
	kind, parameters, err := mime.ParseMediaType(parsed.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		return errors.New("the message has no alternative parts: " + kind)
	}
	parts := multipart.NewReader(parsed.Body, parameters["boundary"])
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil {
			return err
		}
		if strings.HasPrefix(part.Header.Get("Content-Type"), "text/html") {
			m.HTML = string(text)
		} else {
			m.Plain = string(text)
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}
