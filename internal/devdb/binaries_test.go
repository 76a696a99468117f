package devdb

import "testing"

func TestVersionsAreRead(t *testing.T) {
	t.Parallel()
	tests := map[string]int{
		"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n": 15,
		"postgres (PostgreSQL) 18beta2\n":                        18,
		"postgres (PostgreSQL) 9.6.24\n":                         9,
		"command not found":                                      0,
		"":                                                       0,
	}
	for text, want := range tests {
		if got := parseVersion(text); got != want {
			t.Errorf("%q is version %d, want %d", text, got, want)
		}
	}
}
