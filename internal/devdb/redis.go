package devdb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Redis is a redis-server of our own. It writes nothing to disk but its log: buckets that are lost
// are full buckets.
type Redis struct {
	binary string
	dir    string
	port   int
	proc   *process
}

// StartRedis starts a redis-server that listens on a free loopback port and keeps its log in dir,
// which is created. It returns when Redis answers; ctx bounds only that wait. The error is
// ErrNotInstalled if there is no redis-server on PATH.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w: %w", ErrNotInstalled, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r := &Redis{binary: binary, dir: dir}
	r.proc, r.port, err = serve(ctx, func(port int) (*process, error) { return r.start(ctx, port) })
	if err != nil {
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	return r, nil
}

func (r *Redis) start(ctx context.Context, port int) (*process, error) {
	// The server outlives ctx.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), r.binary, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no")
	cmd.Dir = r.dir
	// A frozen Redis would keep any other signal pending for ever; it has nothing to save.
	cmd.SysProcAttr = sysProcAttr(syscall.SIGKILL, nil)
	p, err := spawn(cmd, filepath.Join(r.dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	err = p.awaitReady(ctx, func(ctx context.Context) error { return ping(ctx, port, p.cmd.Process.Pid) })
	return p, err
}

// ping asks the Redis on a port whether it is the process that was started there: the port may have
// been taken by another Redis in between.
func ping(ctx context.Context, port, pid int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(conn, "INFO server\r\n"); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "process_id:"); ok {
			if text != strconv.Itoa(pid) {
				return fmt.Errorf("port %d: address already in use by the Redis process %s", port, text)
			}
			return nil
		}
	}
	return errors.Join(errors.New("no process_id in Redis's answer"), lines.Err())
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr is host:port, the same for the life of r.
func (r *Redis) Addr() string { return address(r.port) }

// URL is the address as a redis:// URL.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

// Done is closed when the server that runs now has ended. After Restart it is another channel.
func (r *Redis) Done() <-chan struct{} { return r.proc.done }

// Stop ends the server in an orderly way, thawing it first, and returns when it has ended. It does
// nothing if it has ended already.
func (r *Redis) Stop() error {
	if err := r.Thaw(); err != nil {
		return err
	}
	return r.proc.stop(syscall.SIGTERM)
}

// Kill ends the server at once, as a crash would, frozen or not.
func (r *Redis) Kill() { r.proc.kill() }

// Freeze suspends the server: connections stay open and new ones are accepted by the kernel, but
// nothing answers.
func (r *Redis) Freeze() error { return r.proc.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (r *Redis) Thaw() error { return r.proc.signal(syscall.SIGCONT) }

// Restart kills the server if it still runs and starts an empty one on the same port. It returns
// when that one answers. It must not be called while another method of r runs.
func (r *Redis) Restart(ctx context.Context) error {
	r.Kill()
	p, err := r.start(ctx, r.port)
	if err != nil {
		return fmt.Errorf("restart Redis: %w", err)
	}
	r.proc = p
	return nil
}
