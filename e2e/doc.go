// Package e2e holds the tests of Sluice from outside: they build the real binaries, start them as an
// operator does, and know of them only what the documentation promises: options, exit statuses,
// printed results, log lines that name an address, HTTP.
//
// Each test has its own database and, where it needs one, its own Redis, so that all of them run in
// parallel. Times that are promised (2 s for a changed rule, the wait in Retry-After) are really
// waited for; outages last as short as they can, and longer with -soak.
package e2e
