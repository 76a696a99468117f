package buckettest

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
)

func runKeys(t *testing.T, open func(t *testing.T) Store) {
	long := strings.Repeat("x", 300)
	digest := sha256.Sum256([]byte(long))
	subjects := []string{
		"", "0", "1", "1:", ":1", "::", "42", "042", "4 2", "42\n", "42\r\n",
		"\x00", "\x00\x00", "a\x00", "a\x00b", "a",
		"{", "}", "{}", "{1}", "{t1}", "{s1}", "{s2}1:a", "}1:a",
		"#", "#a", ":a", "1#a", "1:a",
		"\xff", "\xfe", "\xff\xfe", "\ufffd", "é", "e\u0301", "É",
		strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 65), long, long + "y",
		string(digest[:]), "#" + string(digest[:]), ":" + string(digest[:]),
	}
	t.Run("different keys never share a bucket", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		var keys []enforce.Key
		for _, subject := range subjects {
			keys = append(keys,
				enforce.Key{Tenant: 1, Rule: 1, Subject: subject},
				enforce.Key{Tenant: 1, Rule: 11, Subject: subject},
				enforce.Key{Tenant: 11, Rule: 1, Subject: subject},
				enforce.Key{Tenant: 1, Rule: -1, Subject: subject}, // of checks' own limits
				enforce.Key{Tenant: 1, Rule: -11, Subject: subject})
		}
		for _, k := range keys {
			tier := enforce.Tier{Key: k, Limit: limit(1, 1, 0)}
			answers := take(t, s, after(0), checkOf(1, tier), checkOf(1, tier))
			if !answers[0].Allowed {
				t.Errorf("%+v shares a bucket with an earlier key", k)
			}
			if answers[1].Allowed {
				t.Errorf("%+v has two buckets", k)
			}
		}
		expectKeys(t, s, len(keys))
	})
}
