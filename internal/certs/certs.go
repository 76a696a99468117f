// Package certs reads certificates, keys and authorities from files, for servers and clients.
//
// Changed files are read again without a restart, before a handshake. Unusable files, such as a certificate whose key
// is
// not replaced yet, leave the last good ones in force and are logged once. Errors never contain the content of files.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// File is a PEM file and the option that named it.
type File struct{ Path, Option string }

// Files are the certificate of a server or client and the authorities that it trusts. All are optional.
type Files struct {
	Cert, Key File // both or none
	// CA signs the other side's certificate. Without it, a server asks for none and a client trusts the operating
	// system's authorities.
	CA File
}

const checkEvery = time.Second

// Source holds the current content of Files.
type Source struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	current content
	seen    [3]stamp // of the files when they were last read, usable or not
	checked time.Time
}

type content struct {
	cert *tls.Certificate
	ca   *x509.CertPool
}

// stamp also detects a replaced link, such as those of Kubernetes' mounted secrets.
type stamp struct {
	modified time.Time
	size     int64
}

// Open reads the files, and names the option of the first unusable one in its error.
func Open(files Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, log: log, now: time.Now}
	s.checked, s.seen = s.now(), s.stamps()
	var err error
	s.current, err = s.read()
	return s, err
}

func (s *Source) read() (c content, err error) {
	if s.files.Cert.Path != "" {
		if c.cert, err = s.readPair(); err != nil {
			return content{}, err
		}
	}
	if s.files.CA.Path != "" {
		if c.ca, err = readCA(s.files.CA); err != nil {
			return content{}, err
		}
	}
	return c, nil
}

func (s *Source) readPair() (*tls.Certificate, error) {
	cert, err := os.ReadFile(s.files.Cert.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.files.Cert.Option, err)
	}
	key, err := os.ReadFile(s.files.Key.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.files.Key.Option, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil { // the error contains no part of the files
		return nil, fmt.Errorf("%s and %s: %w", s.files.Cert.Option, s.files.Key.Option, err)
	}
	if now := s.now(); now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s: the certificate in %s expired at %s; put a new one there",
			s.files.Cert.Option, s.files.Cert.Path, pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &pair, nil
}

func readCA(file File) (*x509.CertPool, error) {
	text, err := os.ReadFile(file.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Option, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %s has no certificate in PEM", file.Option, file.Path)
	}
	return pool, nil
}

func (s *Source) stamps() (stamps [3]stamp) {
	for i, file := range []File{s.files.Cert, s.files.Key, s.files.CA} {
		if file.Path == "" {
			continue
		}
		if info, err := os.Stat(file.Path); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

func (s *Source) content() content {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if now.Sub(s.checked) < checkEvery {
		return s.current
	}
	s.checked = now
	seen := s.stamps()
	if seen == s.seen {
		return s.current
	}
	s.seen = seen
	fresh, err := s.read()
	if err != nil {
		s.log.Error("certificates have changed and cannot be used; the last good ones stay in force", "error", err)
		return s.current
	}
	s.log.Info("certificates were read again, because their files have changed", "option", s.option())
	s.current = fresh
	return fresh
}

func (s *Source) option() string {
	if s.files.Cert.Path != "" {
		return s.files.Cert.Option
	}
	return s.files.CA.Option
}

// Expiry returns the expiry of this side's certificate, or zero without one.
func (s *Source) Expiry() time.Time {
	if cert := s.content().cert; cert != nil {
		return cert.Leaf.NotAfter
	}
	return time.Time{}
}

// Server returns the configuration of a listener, which needs a certificate. With a CA, clients must show a certificate
// that it signed.
func (s *Source) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := s.content()
			c := &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: protocols,
				Certificates: []tls.Certificate{*now.cert},
			}
			if now.ca != nil {
				c.ClientCAs, c.ClientAuth = now.ca, tls.RequireAndVerifyClientCert
			}
			return c, nil
		},
	}
}

// Dialer connects by TLS, and names the option of the CA in errors about the server's certificate.
type Dialer struct {
	*Source
	ServerName string        // required in the certificate; "" is the host of the address
	Timeout    time.Duration // of the connection and the handshake together
}

// DialContext connects to host:port.
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	now := d.content()
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: d.ServerName, RootCAs: now.ca}
	if now.cert != nil {
		c.Certificates = []tls.Certificate{*now.cert}
	}
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, network, addr)
	var refused *tls.CertificateVerificationError
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &refused) && d.files.CA.Path != "":
		return nil, fmt.Errorf("connect to %s: its certificate is not signed by the authorities of %s: %w", addr,
			d.files.CA.Option, err)
	case errors.As(err, &refused):
		return nil, fmt.Errorf("connect to %s: its certificate is not trusted; name its authority by %s: %w", addr,
			d.files.CA.Option, err)
	}
	return nil, fmt.Errorf("connect to %s by TLS: %w", addr, err)
}
