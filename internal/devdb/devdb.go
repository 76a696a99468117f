// Package devdb runs private Postgres and Redis servers as child processes, for `sluice dev` and tests.
//
// Starting returns once a server answers queries; an error contains the end of its log. Postgres requires a random
// password, because its superuser can run commands. A server that is not stopped is killed with this process on Linux
// and stays elsewhere. A lock on the directory tells a dead server's files from a running one's.
package devdb

import "errors"

// ErrNotInstalled means that this machine has no suitable server program.
var ErrNotInstalled = errors.New("not installed")
