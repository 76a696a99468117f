package devdb

import "testing"

func TestVersionsAreRead(t *testing.T) {
	t.Parallel()
	tests := map[string]int{
		"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n":                       15,
		"postgres (PostgreSQL) 18beta2\n":                                              18,
		"postgres (PostgreSQL) 9.6.24\n":                                               9,
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1\n": 7,
		"Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1\n": 8,
		"command not found": 0,
		"":                  0,
	}
	for text, want := range tests {
		if got := parseVersion(text); got != want {
			t.Errorf("%q is version %d, want %d", text, got, want)
		}
	}
}
