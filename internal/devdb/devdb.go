// Package devdb runs private Postgres and Redis servers as child processes, for `sluice dev` and
// for tests.
//
// A server listens on 127.0.0.1 only, on a free port, and lives in a directory of its own with its
// log. Starting returns when the server answers queries, and an error carries the end of its log.
// Postgres asks for a random password, kept in its directory, because a superuser of a database is a
// shell for whoever on this machine can connect; a guarded Redis asks for one that it has for as long
// as it runs, and that of a test asks for none.
//
// Whoever starts a server stops it. If this process is killed instead, Linux stops its servers;
// elsewhere they stay. Either way the next start copes: a Postgres directory is locked for as long as
// anything of its server lives, so what a dead server left behind is told apart from a running one,
// which is an error that names its process.
//
// Nothing is downloaded. A program that is missing or too old is ErrNotInstalled.
package devdb

import "errors"

// ErrNotInstalled is answered when no program of a server that serves can be found on this machine.
var ErrNotInstalled = errors.New("not installed")
