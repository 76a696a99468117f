package devdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

const (
	dataDir   = "data" // inside the server's directory
	superuser = "sluice"
)

// PostgresOptions are options of a private Postgres.
type PostgresOptions struct {
	Throwaway bool // without syncing to disk: a crash of the machine may corrupt the data
}

// Postgres is a private Postgres server.
type Postgres struct {
	dir      string
	binaries string   // folder of postgres and initdb
	as       *runAs   // nil: this process's user
	lock     *os.File // shared with the server
	options  PostgresOptions
	password string
	port     *Port
	proc     *process
}

// StartPostgres starts a Postgres server on a free loopback port, with its data, log and password in dir. Under root it
// runs as user postgres, who becomes the owner of dir. The error is ErrNotInstalled without a Postgres 15 or later, or
// without the version that wrote the data.
func StartPostgres(ctx context.Context, dir string, options PostgresOptions) (*Postgres, error) {
	p := &Postgres{options: options}
	if err := p.prepare(ctx, dir); err != nil {
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	var err error
	p.proc, p.port, err = serve(func(port *Port) (*process, error) { return p.start(ctx, port) })
	if err != nil {
		_ = p.lock.Close()
		return nil, fmt.Errorf("start Postgres: %w", err)
	}
	return p, nil
}

func (p *Postgres) prepare(ctx context.Context, dir string) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if p.as, err = serverUser("postgres"); err != nil {
		return fmt.Errorf("Postgres refuses to run as root: %w", err)
	}
	if p.dir, err = p.as.place(dir); err != nil {
		return err
	}
	if p.binaries, err = findPostgres(ctx, p.path(dataDir)); err != nil {
		return err
	}
	if p.lock, err = lockDir(ctx, p.dir); err != nil {
		return err
	}
	if err = p.initialize(ctx); err != nil {
		_ = p.lock.Close()
		return err
	}
	// The lock is ours, so the pid file is stale. Postgres would check whether its pid is alive, which after a reboot
	// may be any process of the user.
	if err = os.Remove(p.path(dataDir, "postmaster.pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = p.lock.Close()
		return err
	}
	return nil
}

// initialize renames the folder when complete, so that an interrupted attempt is not taken for a database.
func (p *Postgres) initialize(ctx context.Context) error {
	passwordFile := p.path("password")
	if _, err := os.Stat(p.path(dataDir)); err == nil {
		password, err := os.ReadFile(passwordFile)
		p.password = strings.TrimSpace(string(password))
		return err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.password = newPassword()
	if err := os.WriteFile(passwordFile, []byte(p.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := p.as.own(passwordFile); err != nil {
		return err
	}
	unfinished := p.path(dataDir + ".new")
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	arguments := []string{
		"--pgdata", unfinished, "--username", superuser, "--pwfile", passwordFile,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale",
	}
	if p.options.Throwaway {
		arguments = append(arguments, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.binaries, "initdb"), arguments...)
	p.asServer(cmd)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", p.explain(err), strings.TrimSpace(string(output)))
	}
	return os.Rename(unfinished, p.path(dataDir))
}

func (p *Postgres) start(ctx context.Context, port *Port) (*process, error) {
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + port.String(),
		"unix_socket_directories=", // a socket's path is limited to 107 bytes
		"max_connections=200", "timezone=UTC", "log_timezone=UTC",
	}
	if p.options.Throwaway {
		settings = append(settings, "fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0",
			"autovacuum=off")
	}
	arguments := []string{"-D", p.path(dataDir)}
	for _, setting := range settings {
		arguments = append(arguments, "-c", setting)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(p.binaries, "postgres"), arguments...)
	p.asServer(cmd)
	cmd.ExtraFiles = []*os.File{p.lock}
	proc, err := spawn(cmd, p.path("postgres.log"))
	if err != nil {
		return nil, p.explain(err)
	}
	err = proc.awaitReady(ctx, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, connectionURL(port, p.password, "postgres"))
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
	return proc, err
}

func (p *Postgres) asServer(cmd *exec.Cmd) {
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C") // English logs; macOS needs a locale to start
	cmd.SysProcAttr = sysProcAttr(syscall.SIGINT, p.as.credential())
}

func (p *Postgres) explain(err error) error {
	if p.as != nil && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("user %s, whom Postgres runs as because it refuses root, cannot enter %s; choose a "+
			"directory "+
			"that it can reach: %w", p.as.name, p.dir, err)
	}
	return err
}

func (p *Postgres) path(elements ...string) string {
	return filepath.Join(append([]string{p.dir}, elements...)...)
}

// Dir returns the real path of the server's files.
func (p *Postgres) Dir() string { return p.dir }

// URL returns the superuser's URL of a database.
func (p *Postgres) URL(database string) string { return connectionURL(p.port, p.password, database) }

func connectionURL(port *Port, password, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, password), Host: port.Addr(),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase creates a database, if it does not exist, and returns its URL.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (databaseURL string, err error) {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil {
		return "", fmt.Errorf("look for database %s: %w", name, err)
	}
	if exists {
		return p.URL(name), nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return p.URL(name), nil
}

// Done is closed when the server has ended.
func (p *Postgres) Done() <-chan struct{} { return p.proc.done }

// Stop shuts the server down cleanly and waits for its end.
func (p *Postgres) Stop() error {
	err := p.proc.stop(syscall.SIGINT)
	return errors.Join(err, p.unlock())
}

// Kill kills the server like a crash, for tests.
func (p *Postgres) Kill() {
	p.proc.kill()
	_ = p.unlock()
}

func (p *Postgres) unlock() error {
	p.port.Release()
	if err := p.lock.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("unlock directory: %w", err)
	}
	return nil
}

type runAs struct {
	name     string
	uid, gid int
}

func serverUser(name string) (*runAs, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is a meaningful value: run as whoever we are
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("look for a user to run as: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, fmt.Errorf("user %s has uid %q: %w", name, u.Uid, err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, fmt.Errorf("user %s has gid %q: %w", name, u.Gid, err)
	}
	return &runAs{name: u.Username, uid: uid, gid: gid}, nil
}

func (u *runAs) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
}

func (u *runAs) own(path string) error {
	if u == nil {
		return nil
	}
	return os.Lchown(path, u.uid, u.gid) // not the target of a link
}
