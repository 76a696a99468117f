package rules

import "testing"

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
