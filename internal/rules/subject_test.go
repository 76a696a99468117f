package rules

import (
	"strings"
	"testing"
)

func TestAStoredSubjectIsItsUsers(t *testing.T) {
	t.Parallel()
	const mallory = "mallory@example"
	const userLast, userMiddle = "endpoint:{endpoint}:user:{user_id}", "ip:{ip}:user:{user_id}:endpoint:{endpoint}"
	tests := map[string]struct {
		pattern string
		values  []string
		user    string
		want    bool
	}{
		"one value":              {"user:{user_id}", []string{"42"}, "42", true},
		"the user first":         {"user:{user_id}:endpoint:{endpoint}", []string{"42", "long"}, "42", true},
		"another user":           {"user:{user_id}:endpoint:{endpoint}", []string{"43", "long"}, "42", false},
		"one in the path":        {"user:{user_id}:endpoint:{endpoint}", []string{"43", ",2:42" + "long"}, "42", false},
		"the user last, cut":     {userLast, []string{"fits", mallory}, mallory, true},
		"a like user, cut":       {userLast, []string{"fits", mallory}, "mallory@xxample", false},
		"the user cut off":       {userLast, []string{"long", "42"}, "42", false},
		"no user":                {"endpoint:{endpoint}", []string{"long"}, "42", false},
		"a user of the rule":     {"user:42:endpoint:{endpoint}", []string{"long"}, "42", false},
		"the user in the middle": {userMiddle, []string{"::1", "42", "long"}, "42", true},
		"an address and no user": {"ip:{ip}:endpoint:{endpoint}", []string{"42", "long"}, "42", false},
		"cut, and more after":    {userLast + ":ip:{ip}", []string{"fits", mallory, "::1"}, mallory, false},
	}
	long, fits := "/"+strings.Repeat("é", 510), "/"+strings.Repeat("a", 1009)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pattern := must(ParsePattern(test.pattern))(t)
			var subject []byte
			for _, value := range test.values {
				value = strings.NewReplacer("long", long, "fits", fits).Replace(value)
				if len(test.values) == 1 {
					subject = []byte(value)
					break
				}
				subject = AppendSubject(subject, value)
			}
			stored := StoredSubject(string(subject))
			if got := pattern.HasStored(stored, test.user); got != test.want {
				t.Errorf("%q is %s's: %t, want %t", stored, test.user, got, test.want)
			}
		})
	}
}

func FuzzASubjectIsSplitInOneWay(f *testing.F) {
	f.Add("2:42,11:/api/search", 2)
	f.Add("1:,,1::", 2)
	f.Add("1:a,1:b,1:c", 3)
	f.Fuzz(func(t *testing.T, subject string, placeholders int) {
		if placeholders < 2 || placeholders > 20 {
			return
		}
		values, ok := splitSubject(subject, placeholders)
		if !ok {
			return
		}
		var joined []byte
		for _, value := range values {
			joined = AppendSubject(joined, value)
		}
		if len(values) != placeholders || string(joined) != subject {
			t.Errorf("%q is split into %q, which is joined as %q", subject, values, joined)
		}
	})
}
