// Package devdbtest gives each test a real Postgres database and a real Redis.
//
// The databases of a test binary share one Postgres server, which the first test starts (about 1 s). A database is
// a
// copy of a migrated one (about 0.05 s). A package that uses Postgres needs a TestMain:
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
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

const (
	empty    = "template1"
	migrated = "migrated"
)

var shared struct {
	cleansUp bool // Main was called
	prepared sync.Map

	sync.Mutex
	databases int
	server    *devdb.Postgres
	conn      *pgx.Conn // creates databases
	dir       string
	err       error
}

// Suite runs a package's tests and then stops the shared Postgres server.
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
		shared.server.Kill() // its data is not needed
	}
	if err := os.RemoveAll(shared.dir); err != nil {
		fmt.Fprintln(os.Stderr, "remove the tests' Postgres:", err)
		return 1
	}
	return code
}

// Postgres returns the URL of a database for this test, with the present schema.
func Postgres(tb testing.TB) (databaseURL string) {
	tb.Helper()
	return database(tb, migrated)
}

// EmptyPostgres is Postgres without a schema.
func EmptyPostgres(tb testing.TB) (databaseURL string) {
	tb.Helper()
	return database(tb, empty)
}

// Prepared is Postgres with rows, which only the first call with a name writes.
func Prepared(tb testing.TB, name string, write func(databaseURL string)) (databaseURL string) {
	tb.Helper()
	one, _ := shared.prepared.LoadOrStore(name, new(prepared))
	p, _ := one.(*prepared)
	p.Do(func() {
		original := Postgres(tb)
		write(original)
		p.database = original[strings.LastIndex(original, "/")+1 : strings.LastIndex(original, "?")]
	})
	if p.database == "" {
		tb.Fatalf("an earlier test could not prepare the database %s", name)
	}
	return database(tb, p.database)
}

type prepared struct {
	sync.Once
	database string // "" if it could not be written
}

func database(tb testing.TB, template string) string {
	tb.Helper()
	if !shared.cleansUp {
		tb.Fatal("this package's TestMain must run devdbtest.Main, which stops the Postgres server")
	}
	databaseURL, err := create(tb.Context(), template)
	if err != nil {
		tb.Fatal(err)
	}
	return databaseURL
}

func create(ctx context.Context, template string) (databaseURL string, err error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.err = start(ctx)
	}
	if shared.err != nil {
		return "", shared.err
	}
	shared.databases++
	name := fmt.Sprintf("test_%d", shared.databases)
	// By files: the default writes all pages to the log too, which takes several times the processor time.
	statement := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy", name, template)
	// The end of the test's context would close the connection for others.
	if _, err := shared.conn.Exec(context.WithoutCancel(ctx), statement); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return shared.server.URL(name), nil
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
	databaseURL, err := server.CreateDatabase(ctx, migrated)
	if err != nil {
		return err
	}
	if err := migrate.Up(ctx, databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	shared.conn, err = pgx.Connect(ctx, server.URL("postgres"))
	return err
}

const memory = "/dev/shm" // a disk took a minute to remove the 150 databases of a package

func baseDir() string {
	const enough = 8 << 20 // KiB; two packages run at once, and the largest takes 2 GiB
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

// removeLeftovers removes the directories of killed test binaries, whose locks are free. Young directories stay,
// because they may not be locked yet.
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
