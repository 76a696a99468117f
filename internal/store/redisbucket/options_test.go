package redisbucket

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestOptionsReadsURLs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ url, want string }{
		"a host":                     {"redis://localhost", "[localhost:6379]"},
		"a port and a database":      {"redis://10.0.0.1:6380/3", "[10.0.0.1:6380] db 3"},
		"an IPv6 address":            {"redis://[::1]", "[[::1]:6379]"},
		"an IPv6 address and a port": {"redis://[::1]:7000/", "[[::1]:7000]"},
		"user and password":          {"redis://ann:p%40ss%2Fw@h", "[h:6379] ann/p@ss/w"},
		"a password alone":           {"redis://:secret@h", "[h:6379] /secret"},
		"TLS":                        {"rediss://h", "[h:6379] tls"},
		"several addresses":          {"rediss://a,b:7000,c", "[a:6379 b:7000 c:6379] tls"},
		"a cluster of one address":   {"redis://a?cluster=true", "[a:6379] cluster"},
		"sentinels":                  {"redis+sentinel://a,b:1/main", "[a:26379 b:1] master main"},
		"sentinels with passwords": {
			"rediss+sentinel://u:p@a/main/2?sentinel_user=s&sentinel_password=t%40",
			"[a:26379] u/p db 2 master main sentinel s/t@ tls",
		},
	}
	for name, test := range tests {
		o, err := Options(test.url, 20*time.Millisecond)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := fmt.Sprint(o.Addrs)
		add := func(is bool, format string, args ...any) {
			if is {
				got += fmt.Sprintf(" "+format, args...)
			}
		}
		add(o.Username+o.Password != "", "%s/%s", o.Username, o.Password)
		add(o.DB != 0, "db %d", o.DB)
		add(o.MasterName != "", "master %s", o.MasterName)
		add(o.SentinelUsername != "", "sentinel %s/%s", o.SentinelUsername, o.SentinelPassword)
		add(o.IsClusterMode, "cluster")
		add(o.TLSConfig != nil, "tls")
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestOptionsKeepEveryWaitWithinTheBudget(t *testing.T) {
	t.Parallel()
	for budget, want := range map[time.Duration]time.Duration{
		0:                    DefaultBudget,
		7 * time.Millisecond: 7 * time.Millisecond,
	} {
		o, err := Options("redis://h", budget)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, 2 * o.PoolTimeout} {
			if got <= 0 || got > want {
				t.Errorf("budget %v: a timeout of %v", budget, got)
			}
		}
		if o.MaxRetries != -1 || !o.ContextTimeoutEnabled {
			t.Errorf("%d retries, contexts honoured: %t", o.MaxRetries, o.ContextTimeoutEnabled)
		}
	}
}

func TestOptionsNameWhatIsWrongAndNeverAPassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	tests := map[string]struct{ url, want string }{
		"no scheme":                {"hunter2@localhost:6379", "scheme"},
		"another scheme":           {"http://u:hunter2@h", "scheme"},
		"nothing":                  {"", "scheme"},
		"no host":                  {"redis://u:hunter2@", "address 1"},
		"an empty address":         {"redis://u:hunter2@a,,b", "address 2"},
		"a port that is none":      {"redis://u:hunter2@a,b:x", "address 2 has no valid port"},
		"a port out of range":      {"redis://u:hunter2@a:65536", "port"},
		"a forgotten host":         {"redis://u:hunter2", "port"},
		"a slash in the password":  {"redis://u:/hunter2@h", "%2F"},
		"a question mark in it":    {"redis://u:x?hunter2@h", "%3F"},
		"a hash in it":             {"redis://u:x#hunter2@h", "%23"},
		"a broken escape in it":    {"redis://u:%zzhunter2@h", "percent escape"},
		"a broken escape in user":  {"redis://u%zz:hunter2@h", "the user"},
		"a database that is none":  {"redis://u:hunter2@h/x", `"x" is not a database`},
		"a negative database":      {"redis://u:hunter2@h/-1", "database"},
		"a cluster's database":     {"redis://u:hunter2@a,b/1", "cluster"},
		"an unknown setting":       {"redis://u:hunter2@h?pool_size=3", "pool_size"},
		"a setting twice":          {"redis://u:hunter2@h?cluster=true&cluster=false", "cluster is given twice"},
		"a setting for sentinels":  {"redis://h?sentinel_password=hunter2", "sentinel_password"},
		"sentinels without a name": {"redis+sentinel://u:hunter2@a,b", "master"},
	}
	for name, test := range tests {
		_, err := Options(test.url, 0)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %s", name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds the password: %v", name, err)
		}
	}
}
