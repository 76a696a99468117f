package devdb_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/devdb"
)

const startsPostgresIn = "DEVDB_TEST_STARTS_POSTGRES_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(startsPostgresIn); dir != "" {
		p, err := devdb.StartPostgres(context.Background(), dir, devdb.PostgresOptions{Throwaway: true})
		_, _ = fmt.Fprintln(os.Stdout, err) // nil means that the server is ready
		<-p.Done()
		return
	}
	goleak.VerifyTestMain(m)
}

// serverDir returns a directory that the server's user can reach, unlike t.TempDir under root.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-test-devdb-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "a directory", "postgres")
}

func startPostgres(t *testing.T, dir string) *devdb.Postgres {
	t.Helper()
	p, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func query(t *testing.T, url, sql string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	err = conn.QueryRow(t.Context(), sql).Scan(&answer)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return answer
}

func TestPostgresKeepsItsDataBetweenRuns(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	ends := map[string]func(*devdb.Postgres) error{
		"an orderly stop": (*devdb.Postgres).Stop,
		"a crash":         func(p *devdb.Postgres) error { p.Kill(); return nil },
	}
	start := func() *devdb.Postgres { // commits must survive a crash
		p, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	p := start()
	url, err := p.CreateDatabase(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	query(t, url, "CREATE TABLE note (text text)")
	query(t, url, "INSERT INTO note VALUES ('still here')")
	for name, end := range ends {
		if err := end(p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p = start()
		url, err := p.CreateDatabase(t.Context(), "kept") // keeps the existing one
		if err != nil {
			t.Fatal(err)
		}
		if text := query(t, url, "SELECT text FROM note"); text != "still here" {
			t.Errorf("after %s the note says %q", name, text)
		}
	}
}

func TestPostgresIsClosedToOthers(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, serverDir(t))
	config, err := pgx.ParseConfig(p.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "127.0.0.1" {
		t.Errorf("it is reached at %s, want loopback", config.Host)
	}
	if text := query(t, p.URL("postgres"), "SHOW listen_addresses"); text != "127.0.0.1" {
		t.Errorf("it listens on %q", text)
	}
	config.Password = "guess"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		_ = conn.Close(t.Context())
		t.Error("any password opens it")
	}
}

func TestASecondServerInADirectoryIsRefusedByName(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p := startPostgres(t, dir)
	// The start waits for a while, since the other server may be shutting down.
	_, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{Throwaway: true})
	if err == nil || !strings.Contains(err.Error(), "is in use by a running server (process ") {
		t.Errorf("error is %v, want one that names the running process", err)
	}
	if text := query(t, p.URL("postgres"), "SELECT 'unharmed'"); text != "unharmed" {
		t.Errorf("the first server answers %q", text)
	}
}

func TestAPidFileThatWasLeftBehindIsNoServer(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	if err := startPostgres(t, dir).Stop(); err != nil {
		t.Fatal(err)
	}
	// After a reboot, the file may name a live process of another program.
	left := fmt.Sprintf("%d\n%s\n1\n5432\n\n127.0.0.1\n", os.Getppid(), filepath.Join(dir, "data"))
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	startPostgres(t, dir)
}

func TestAServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("only Linux sends the signal; elsewhere the server stays, as the package says")
		return
	}
	dir := serverDir(t)
	other := exec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), startsPostgresIn+"="+dir)
	output, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "<nil>" {
		t.Fatalf("the other process could not start a server: %s", lines.Text())
	}
	if err := other.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	var p *devdb.Postgres
	for deadline := time.Now().Add(time.Minute); ; {
		p, err = devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{Throwaway: true})
		if err == nil || time.Now().After(deadline) || !strings.Contains(err.Error(), "is in use by a running server") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
}

func TestAnErrorCarriesTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	if err := startPostgres(t, dir).Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "postgresql.conf"), []byte("no_such_setting = on\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") &&
		!strings.Contains(err.Error(), "postgresql.conf") {
		t.Errorf("error is %v, want one with what the log says", err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "postgres.log.1"))
	if err != nil || !strings.Contains(string(log), "ready to accept connections") {
		t.Errorf("the log of the run before was not kept: %v", err)
	}
}

func TestADirectoryThatIsClosedToTheServersUserIsALinkToAnother(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "postgres") // only we can enter its parent
	run := func() string {
		p, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{Throwaway: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		return p.Dir()
	}
	first := run()
	t.Cleanup(func() { _ = os.RemoveAll(first) })
	if again := run(); again != first {
		t.Errorf("the data moved from %s to %s", first, again)
	}
	if moved := first != dir; moved != (os.Geteuid() == 0) {
		t.Errorf("the data is in %s, asked for %s, as uid %d", first, dir, os.Geteuid())
	}
}

func TestDataOfAVersionThatIsNotInstalled(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if postgres, err := user.Lookup("postgres"); err == nil && os.Geteuid() == 0 { // root's directory is not given away
		uid, _ := strconv.Atoi(postgres.Uid)
		if err := os.Chown(dir, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	_, err := devdb.StartPostgres(t.Context(), dir, devdb.PostgresOptions{})
	if !errors.Is(err, devdb.ErrNotInstalled) || !strings.Contains(err.Error(), "written by Postgres 9") {
		t.Errorf("error is %v, want ErrNotInstalled that names the version", err)
	}
}

func TestWithoutRedisOnPathItIsNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := devdb.StartRedis(t.Context(), t.TempDir()); !errors.Is(err, devdb.ErrNotInstalled) {
		t.Errorf("error is %v, want ErrNotInstalled", err)
	}
}

func TestARedisThatIsTooOldIsNotInstalled(t *testing.T) {
	folder := t.TempDir()
	program := "#!/bin/sh\necho 'Redis server v=6.2.7 sha=00000000:0 malloc=libc bits=64'\n"
	if err := os.WriteFile(filepath.Join(folder, "redis-server"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
	_, err := devdb.StartRedis(t.Context(), t.TempDir())
	if !errors.Is(err, devdb.ErrNotInstalled) || !strings.Contains(err.Error(), "version 6") {
		t.Errorf("error is %v, want ErrNotInstalled that names the version", err)
	}
}

func TestAGuardedRedisIsClosedToOthers(t *testing.T) {
	t.Parallel()
	r, err := devdb.StartGuardedRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	address, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	password, _ := address.User.Password()
	for restarted := range 2 {
		if got, err := ask(r.Addr(), "PING", 5*time.Second); !strings.HasPrefix(got, "-NOAUTH") {
			t.Errorf("without a password it answers %q (%v)", got, err)
		}
		if got, err := ask(r.Addr(), "AUTH "+password, 5*time.Second); got != "+OK" {
			t.Errorf("with the password of its URL it answers %q (%v)", got, err)
		}
		if restarted == 0 {
			if err := r.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func ask(address, command string, patience time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func TestRedisCanBeFrozenKilledAndRestarted(t *testing.T) {
	t.Parallel()
	r, err := devdb.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	answers := func(want string, command string) {
		t.Helper()
		if got, err := ask(r.Addr(), command, 5*time.Second); got != want {
			t.Errorf("%s answers %q (%v), want %q", command, got, err, want)
		}
	}
	answers("+OK", "SET key value")
	if err := r.Freeze(); err != nil {
		t.Fatal(err)
	}
	if got, err := ask(r.Addr(), "PING", 100*time.Millisecond); err == nil {
		t.Errorf("a frozen Redis answers %q", got)
	}
	if err := r.Thaw(); err != nil {
		t.Fatal(err)
	}
	answers("$5", "GET key")
	address, ended := r.Addr(), r.Done()
	r.Kill()
	<-ended
	if got, err := ask(r.Addr(), "PING", time.Second); err == nil {
		t.Errorf("a killed Redis answers %q", got)
	}
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.Addr() != address {
		t.Errorf("it moved from %s to %s", address, r.Addr())
	}
	answers("$-1", "GET key") // empty after the restart
	if err := r.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Errorf("a frozen Redis cannot be stopped: %v", err)
	}
}
