package redisbucket

import (
	"crypto/sha256"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestRedisKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 33)
	digest := sha256.Sum256([]byte(long))
	tests := map[string]struct {
		key  enforce.Key
		want string
	}{
		"an empty subject":             {enforce.Key{Tenant: 1, Rule: 12}, "{s1}12:"},
		"a short subject stands as is": {enforce.Key{Tenant: 1, Rule: 12, Subject: "a:{b}\x00"}, "{s1}12:a:{b}\x00"},
		"64 bytes stand as they are":   {enforce.Key{Tenant: 7, Rule: 1, Subject: long[:64]}, "{s7}1:" + long[:64]},
		"66 bytes are hashed":          {enforce.Key{Tenant: 7, Rule: 1, Subject: long}, "{s7}1#" + string(digest[:])},
	}
	for name, test := range tests {
		if got := keyText(test.key); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRedisKeysAreInjectiveAndTheirTenantsChooseTheSlot(t *testing.T) {
	t.Parallel()
	subject := rapid.Custom(func(t *rapid.T) string {
		return rapid.OneOf(
			rapid.StringOfN(rapid.SampledFrom([]rune("{}s1:#\x00")), 0, 6, -1),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 80), func(b []byte) string { return string(b) }),
		).Draw(t, "subject")
	})
	key := rapid.Custom(func(t *rapid.T) enforce.Key {
		return enforce.Key{
			Tenant:  rules.TenantID(rapid.Int64Range(0, 20).Draw(t, "tenant")),
			Rule:    rules.RuleID(rapid.Int64Range(0, 20).Draw(t, "rule")),
			Subject: subject.Draw(t, "subject"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		if (keyText(a) == keyText(b)) != (a == b) {
			t.Fatalf("%+v is %q, %+v is %q", a, keyText(a), b, keyText(b))
		}
		if (tag(keyText(a)) == tag(keyText(b))) != (a.Tenant == b.Tenant) {
			t.Fatalf("%q and %q: tags %q and %q", keyText(a), keyText(b), tag(keyText(a)), tag(keyText(b)))
		}
	})
}

func tag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	text, _, found := strings.Cut(rest, "}")
	if !found || text == "" {
		return key
	}
	return text
}

func keyText(key enforce.Key) string { return string(appendKey(nil, "", key)) }
