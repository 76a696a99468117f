// Package certstest issues certificates for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. CAFile contains its own.
type Authority struct {
	CAFile string
	Pool   *x509.CertPool

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority with files in the test's directory.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.CAFile = a.write(tb, "ca.pem", "CERTIFICATE", der)
	a.Pool = x509.NewCertPool()
	a.Pool.AddCert(a.cert)
	return a
}

// Pair names the files of a certificate and its key.
type Pair struct{ CertFile, KeyFile string }

// Issue writes a certificate for the name, localhost and 127.0.0.1, for servers and clients, valid until a time.
func (a *Authority) Issue(tb testing.TB, name string, until time.Time) Pair {
	tb.Helper()
	key := newKey(tb)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		DNSNames: []string{"localhost", name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return Pair{a.write(tb, name+".pem", "CERTIFICATE", der), a.write(tb, name+".key", "PRIVATE KEY", private)}
}

// Valid issues a certificate that is valid for an hour.
func (a *Authority) Valid(tb testing.TB, name string) Pair {
	tb.Helper()
	return a.Issue(tb, name, time.Now().Add(time.Hour))
}

// Client returns a client's configuration that trusts the authority and shows the pair, if it is not empty.
func (a *Authority) Client(tb testing.TB, p Pair) *tls.Config {
	tb.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.Pool, ServerName: "localhost"}
	if p != (Pair{}) {
		cert, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
		if err != nil {
			tb.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (a *Authority) write(tb testing.TB, name, kind string, der []byte) string {
	tb.Helper()
	path := filepath.Join(a.dir, name)
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatal(err)
	}
	return path
}
