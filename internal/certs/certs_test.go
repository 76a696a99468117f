package certs

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/certs/certstest"
)

func files(pair certstest.Pair, ca string) Files {
	return Files{
		Cert: File{pair.CertFile, "OPTION_CERT"}, Key: File{pair.KeyFile, "OPTION_KEY"}, CA: File{ca, "OPTION_CA"},
	}
}

func serve(t *testing.T, s *Source) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l = tls.NewListener(l, s.Server("http/1.1"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("x")) // begins with the handshake
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func shown(t *testing.T, addr string, config *tls.Config) (name string, err error) {
	t.Helper()
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil { // the server refuses after the client's handshake
		return "", err
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestAServerShowsItsFilesAsTheyAreNow(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	pair := ca.Valid(t, "first")
	var logged bytes.Buffer
	s, err := Open(files(pair, ""), slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, s)
	want := func(name string) {
		t.Helper()
		if got, err := shown(t, addr, ca.Client(t, certstest.Pair{})); got != name || err != nil {
			t.Fatalf("the server shows %q, %v, want %q", got, err, name)
		}
	}
	elapse := func() { s.checked = time.Time{} } // as if a second had passed
	want("first")

	other := ca.Valid(t, "second")
	replace(t, other.CertFile, pair.CertFile) // its key is still the old one
	elapse()
	want("first")
	if got := logged.String(); strings.Count(got, "OPTION_CERT and OPTION_KEY") != 1 ||
		strings.Contains(got, "PRIVATE") {
		t.Errorf("it logged %q, want one line that names both options", got)
	}
	replace(t, other.KeyFile, pair.KeyFile)
	elapse()
	want("second")

	replace(t, ca.Issue(t, "stale", time.Now().Add(-time.Minute)).CertFile, pair.CertFile)
	elapse()
	want("second")
}

func replace(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// Two writes within a tick of the file system's clock have one time, and may have one size.
	if err := os.Chtimes(to, time.Time{}, time.Now().Add(time.Duration(len(from))*time.Second)); err != nil {
		t.Fatal(err)
	}
}

func TestClientsNeedACertificateWhereThereIsAClientCA(t *testing.T) {
	t.Parallel()
	ca, other := certstest.New(t), certstest.New(t)
	s, err := Open(files(ca.Valid(t, "server"), ca.CAFile), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, s)
	for name, test := range map[string]struct {
		pair certstest.Pair
		ok   bool
	}{
		"a certificate of the authority":          {ca.Valid(t, "client"), true},
		"no certificate":                          {certstest.Pair{}, false},
		"a certificate of another authority":      {other.Valid(t, "stranger"), false},
		"a certificate of the authority, expired": {ca.Issue(t, "late", time.Now().Add(-time.Minute)), false},
	} {
		if _, err := shown(t, addr, ca.Client(t, test.pair)); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilesThatCannotBeUsedAreRefusedByOption(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	pair, other := ca.Valid(t, "a"), ca.Valid(t, "b")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files Files
		want  string
	}{
		"a missing certificate": {
			files(certstest.Pair{CertFile: "nowhere", KeyFile: pair.KeyFile}, ""),
			"OPTION_CERT: open nowhere",
		},
		"a missing key": {
			files(certstest.Pair{CertFile: pair.CertFile, KeyFile: "nowhere"}, ""),
			"OPTION_KEY: open nowhere",
		},
		"a key of another": {
			files(certstest.Pair{CertFile: pair.CertFile, KeyFile: other.KeyFile}, ""),
			"OPTION_CERT and OPTION_KEY: tls: private key does not match",
		},
		"a key that is none": {
			files(certstest.Pair{CertFile: pair.CertFile, KeyFile: empty}, ""),
			"OPTION_CERT and OPTION_KEY: tls: ",
		},
		"an expired certificate": {
			files(ca.Issue(t, "c", time.Now().Add(-time.Minute)), ""),
			"OPTION_CERT: the certificate in ",
		},
		"no authority": {files(pair, empty), "OPTION_CA: " + empty + " has no certificate in PEM"},
	} {
		_, err := Open(test.files, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
		}
	}
}

func TestADialerVerifiesTheServer(t *testing.T) {
	t.Parallel()
	ca, other := certstest.New(t), certstest.New(t)
	open := func(f Files) *Source {
		s, err := Open(f, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	addr := serve(t, open(files(ca.Valid(t, "server"), "")))
	for name, test := range map[string]struct {
		ca, server, want string
	}{
		"the right authority":       {ca.CAFile, "", ""},
		"the right name":            {ca.CAFile, "server", ""},
		"another name":              {ca.CAFile, "else", "not signed by the authorities of OPTION_CA"},
		"another authority":         {other.CAFile, "", "not signed by the authorities of OPTION_CA"},
		"the system's, which is no": {"", "", "name its authority by OPTION_CA"},
	} {
		d := Dialer{Source: open(files(certstest.Pair{}, test.ca)), ServerName: test.server, Timeout: time.Minute}
		c, err := d.DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
