// Package devdb runs private Postgres and Redis servers as child processes, for `sluice dev` and tests.
//
// A server listens on a free port of 127.0.0.1 and keeps its log in a directory of its own. Starting returns once
// it
// answers queries; an error contains the end of its log. Postgres requires a random password, because its
// superuser can
// run commands. A server that is not stopped is killed with this process on Linux and stays elsewhere. A lock on
// the
// directory tells a dead server's files from a running one's. Nothing is downloaded.
package devdb

import "errors"

// ErrNotInstalled means that this machine has no suitable server program.
var ErrNotInstalled = errors.New("not installed")
