// Package e2e holds the tests of Sluice from outside: they build the real binaries, start them like an operator,
// and know
// of them only what the documentation promises.
//
// Each test has its own database and, where needed, its own Redis, so that all run in parallel. Promised times (2
// s for
// a changed rule, the wait in Retry-After) are really waited for; outages last longer with -soak.
package e2e
