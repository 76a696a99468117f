package devdb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Redis is a private redis-server, which stores nothing on disk unless it is durable.
type Redis struct {
	binary   string
	dir      string
	as       *runAs // nil: this process's user
	password string // "": none
	port     *Port  // reserved until the end, for Restart
	bus      *Port  // for a cluster's server
	proc     *process

	isDurable bool   // it writes each command to a file before the answer
	master    *Redis // replicated master; nil for none
	monitors  *Redis // for a sentinel: the monitored master
}

// StartRedis starts a redis-server without a password on a free loopback port, for tests. The error is ErrNotInstalled
// without a redis-server 7 or later on PATH.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	return startRedis(ctx, &Redis{dir: dir})
}

// StartGuardedRedis starts a Redis with a random password in its URL, under root as user redis or else postgres.
func StartGuardedRedis(ctx context.Context, dir string) (*Redis, error) {
	r := &Redis{dir: dir, password: newPassword()}
	for _, name := range []string{"redis", "postgres"} {
		var err error
		if r.as, err = serverUser(name); err == nil {
			break
		}
	}
	return startRedis(ctx, r)
}

// StartDurableRedis is StartRedis with data that survives Restart.
func StartDurableRedis(ctx context.Context, dir string) (*Redis, error) {
	return startRedis(ctx, &Redis{dir: dir, isDurable: true})
}

func startRedis(ctx context.Context, r *Redis) (_ *Redis, err error) {
	if r.binary, err = findRedis(ctx); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	if r.bus != nil {
		r.proc, err = r.start(ctx, r.port)
	} else {
		r.proc, r.port, err = serve(func(port *Port) (*process, error) { return r.start(ctx, port) })
	}
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	return r, nil
}

func (r *Redis) start(ctx context.Context, port *Port) (*process, error) {
	dir, settings := r.dir, "" // writable, which replication may need
	if r.as != nil {
		dir = "/" // the user may not be able to enter dir, and writes nothing
	}
	if r.password != "" {
		settings = "requirepass " + r.password + "\n" // on standard input, because everybody can read arguments
	}
	args := []string{
		"--bind", "127.0.0.1", "--port", port.String(), "--dir", dir,
		"--save", "", "--maxmemory-policy", "noeviction", "--daemonize", "no",
	}
	if r.isDurable {
		args = append(args, "--appendonly", "yes")
	} else {
		args = append(args, "--appendonly", "no")
	}
	if r.master != nil {
		_, masterPort, _ := net.SplitHostPort(r.master.Addr())
		args = append(args, "--replicaof", "127.0.0.1 "+masterPort, "--repl-diskless-sync-delay", "0")
	}
	if r.bus != nil {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", r.bus.String(), "--cluster-config-file",
			clusterConfig,
			"--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000", "--repl-diskless-sync-delay",
			"0")
	}
	args = append(args, "-")
	if r.monitors != nil {
		var err error
		if args, err = r.sentinelArgs(port); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), r.binary, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(settings)
	// A frozen Redis would not handle another signal, and has nothing to save.
	cmd.SysProcAttr = sysProcAttr(syscall.SIGKILL, r.as.credential())
	p, err := spawn(cmd, filepath.Join(r.dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	err = p.awaitReady(ctx, func(ctx context.Context) error { return ping(ctx, port, r.password, p.cmd.Process.Pid) })
	return p, err
}

func dial(ctx context.Context, port *Port) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", port.Addr())
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// ping checks that the Redis on the port is the process that was started: another Redis may have taken the port.
func ping(ctx context.Context, port *Port, password string, pid int) error {
	conn, err := dial(ctx, port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	commands := "INFO server\r\nQUIT\r\n" // QUIT ends the connection after a refusal
	if password != "" {
		commands = "AUTH " + password + "\r\n" + commands
	}
	if _, err := io.WriteString(conn, commands); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			if text != strconv.Itoa(pid) {
				return fmt.Errorf("port %s: address already in use by the Redis process %s", port, text)
			}
			return nil
		}
	}
	return errors.Join(errors.New("no process_id in Redis's answer"), lines.Err())
}

func (r *Redis) isServing(ctx context.Context) error {
	conn, err := dial(ctx, r.port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "CLUSTER INFO\r\nQUIT\r\n"); err != nil {
		return err
	}
	info, err := io.ReadAll(conn)
	if err == nil && !bytes.Contains(info, []byte("cluster_state:ok")) {
		err = errors.New("the cluster does not serve yet")
	}
	return err
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr returns host:port, which never changes.
func (r *Redis) Addr() string { return r.port.Addr() }

// URL returns the redis:// URL, with the password if there is one.
func (r *Redis) URL() string {
	u := url.URL{Scheme: "redis", Host: r.Addr(), Path: "/0"}
	if r.password != "" {
		u.User = url.UserPassword("", r.password)
	}
	return u.String()
}

// Done is closed when the current server has ended; Restart replaces the channel.
func (r *Redis) Done() <-chan struct{} { return r.proc.done }

// Stop thaws the server, shuts it down cleanly and waits for its end.
func (r *Redis) Stop() error {
	if err := r.Thaw(); err != nil {
		return err
	}
	return r.proc.stop(syscall.SIGTERM)
}

// Kill kills the server, frozen or not.
func (r *Redis) Kill() { r.proc.kill() }

// Freeze suspends the server: the kernel keeps and accepts connections, but nothing answers.
func (r *Redis) Freeze() error { return r.proc.signal(syscall.SIGSTOP) }

// Thaw resumes a frozen server.
func (r *Redis) Thaw() error { return r.proc.signal(syscall.SIGCONT) }

// Restart starts the killed server on the same port, empty unless r is durable. No other method of r may run meanwhile.
func (r *Redis) Restart(ctx context.Context) error {
	r.Kill()
	p, err := r.start(ctx, r.port)
	if err != nil {
		return fmt.Errorf("restart Redis: %w", err)
	}
	r.proc = p
	return nil
}
