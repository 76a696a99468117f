// Package devdbtest gives tests real servers: a Postgres database each, and a Redis each.
//
// All databases of a test binary are on one Postgres server, which the first test that asks for one
// starts (about 1 s) and which ends with the binary. A database is a copy of one that was migrated
// once, and costs about 0.1 s. A package that uses Postgres says so in its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }
//
// or, where goroutines are watched, goleak.VerifyTestMain(devdbtest.Main(m)).
package devdbtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

const template = "migrated"

// shared is the test binary's one Postgres server.
var shared struct {
	cleansUp  bool // Main was called
	databases atomic.Int64

	sync.Mutex
	server *devdb.Postgres
	dir    string
	err    error
}

// Suite runs a package's tests and then stops the Postgres server that they shared.
type Suite struct{ m *testing.M }

// Main returns the suite to run in TestMain.
func Main(m *testing.M) Suite {
	shared.cleansUp = true
	return Suite{m}
}

// Run runs the tests and returns the exit code.
func (s Suite) Run() int {
	code := s.m.Run()
	if shared.server != nil {
		shared.server.Kill() // nothing in it is worth an orderly end
	}
	if err := os.RemoveAll(shared.dir); err != nil {
		fmt.Fprintln(os.Stderr, "remove the tests' Postgres:", err)
		return 1
	}
	return code
}

// Postgres returns the address of a database for this test alone, with the present schema. The
// caller closes its connections; the database is left to the end of the test binary.
func Postgres(tb testing.TB) (databaseURL string) {
	tb.Helper()
	return database(tb, template)
}

// EmptyPostgres is Postgres without any schema.
func EmptyPostgres(tb testing.TB) (databaseURL string) {
	tb.Helper()
	return database(tb, "")
}

func database(tb testing.TB, template string) string {
	tb.Helper()
	if !shared.cleansUp {
		tb.Fatal("this package's TestMain must run devdbtest.Main, which stops the Postgres server")
	}
	server, err := server(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	name := fmt.Sprintf("test_%d", shared.databases.Add(1))
	databaseURL, err := server.CreateDatabase(tb.Context(), name, template)
	if err != nil {
		tb.Fatal(err)
	}
	return databaseURL
}

// server starts the shared server, once; if that failed it answers the same error again.
func server(ctx context.Context) (*devdb.Postgres, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.err = start(ctx)
	}
	return shared.server, shared.err
}

func start(ctx context.Context) (err error) {
	removeLeftovers()
	if shared.dir, err = os.MkdirTemp(baseDir(), "sluice-test-postgres-"); err != nil {
		return fmt.Errorf("make a directory for the tests' Postgres: %w", err)
	}
	server, err := devdb.StartPostgres(ctx, shared.dir, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		return err
	}
	shared.server = server
	databaseURL, err := server.CreateDatabase(ctx, template, "")
	if err != nil {
		return err
	}
	return migrate.Up(ctx, databaseURL, slog.New(slog.DiscardHandler))
}

// memory is a file system in memory on Linux. There a database is made and removed in a fraction of the time: a disk took a
// minute to remove the 150 of a package.
const memory = "/dev/shm"

// baseDir returns where the tests' Postgres keeps its data: in memory if there is much of it, unless TMPDIR says where, else
// in the default directory for temporary files.
func baseDir() string {
	const enough = 8 << 20 // KiB; two packages run at a time, and the largest takes 2 GiB
	if os.Getenv("TMPDIR") != "" {
		return ""
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(memory, &stat); err != nil || stat.Bavail*uint64(stat.Bsize)/1024 < enough {
		return ""
	}
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(info)) {
		var available uint64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &available); err == nil {
			if available >= enough {
				return memory
			}
			break
		}
	}
	return ""
}

// removeLeftovers removes the directories of test binaries that were killed: those whose lock
// nobody holds, except young ones, which may be about to be locked. It cannot fail the tests; what it cannot remove now stays for the next time.
func removeLeftovers() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), "sluice-test-postgres-*", "lock"))
	inMemory, _ := filepath.Glob(filepath.Join(memory, "sluice-test-postgres-*", "lock"))
	locks = append(locks, inMemory...)
	for _, path := range locks {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.Open(path)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}
