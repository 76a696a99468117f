package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func secretIn(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSecretsComeFromFilesAndPasswordsJoinTheirURLs(t *testing.T) {
	t.Parallel()
	c := mustParse(t, "api", []string{"--redis-password-file", secretIn(t, "a/?#%@: b\r\n")},
		"SLUICE_DATABASE_URL_FILE="+secretIn(t, "postgres://app@db/x?sslmode=require\n"),
		"SLUICE_DATABASE_PASSWORD=p&w",
		"SLUICE_REDIS_URL=redis+sentinel://s1,s2/main", "SLUICE_REDIS_SENTINEL_PASSWORD=x@y")
	if got, want := string(c.DatabaseURL), "postgres://app@db/x?sslmode=require&password=p%26w"; got != want {
		t.Errorf("the database is %q, want %q", got, want)
	}
	if got, want := string(c.RedisURL),
		"redis+sentinel://:a%2F%3F%23%25@:%20b@s1,s2/main?sentinel_password=x%40y"; got != want {
		t.Errorf("Redis is %q, want %q", got, want)
	}
	if got := c.DatabaseURL.String() + c.RedisURL.String(); strings.Contains(got, "p%26w") ||
		strings.Contains(got, "x%40y") || strings.Contains(got, "b@") {
		t.Errorf("passwords are shown: %s", got)
	}
}

func TestSecretsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"a value and a file": {
			[]string{database, "SLUICE_DATABASE_URL_FILE=x"},
			"SLUICE_DATABASE_URL and SLUICE_DATABASE_URL_FILE are two values of one option",
		},
		"two passwords": {
			[]string{database, "SLUICE_DATABASE_PASSWORD=x"},
			"SLUICE_DATABASE_PASSWORD and SLUICE_DATABASE_URL both have a password",
		},
		"an empty file": {[]string{database, "SLUICE_REDIS_URL_FILE=" + secretIn(t, "\n")}, "is empty"},
		"a file of two lines": {
			[]string{database, "SLUICE_REDIS_URL_FILE=" + secretIn(t, "hunter2\nb")},
			"has more than one line",
		},
		"a password of nothing": {
			[]string{database, "SLUICE_REDIS_PASSWORD=hunter2"},
			"SLUICE_REDIS_PASSWORD has no use without --redis-url",
		},
		"a file for what is no text": {
			[]string{database, "SLUICE_CHECK_ADDR_FILE=x"},
			"SLUICE_CHECK_ADDR_FILE: there is no such option",
		},
		"a certificate without key": {
			[]string{database, "SLUICE_CHECK_TLS_CERT=x"},
			"--check-tls-cert and --check-tls-key need each other",
		},
		"a client CA alone": {
			[]string{database, "SLUICE_CHECK_TLS_CLIENT_CA=x"},
			"--check-tls-client-ca needs --check-tls-cert",
		},
		"a CA without rediss": {
			[]string{database, "SLUICE_REDIS_TLS_CA=x", "SLUICE_REDIS_URL=redis://a"},
			"rediss://",
		},
	} {
		_, err := Parse("api", nil, test.env)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q in it", name, err, test.want)
		}
	}
}
