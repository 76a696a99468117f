package devdb

import (
	"bufio"
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

// Redis is a redis-server of our own. Unless it is durable it writes nothing to disk but its log: buckets that are lost are full
// buckets.
type Redis struct {
	binary   string
	dir      string
	as       *runAs // nil: as this process's own user
	password string // "": none
	port     *Port  // kept for as long as r is, so that Restart finds it free
	bus      *Port  // likewise, of a server of a cluster
	proc     *process

	isDurable bool   // it writes each command to a file before it answers, and reads that when it starts again
	master    *Redis // that it follows, until a sentinel says otherwise; or nil
	monitors  *Redis // it is a sentinel, which keeps no data, of this master and its replicas
}

// StartRedis starts a redis-server that listens on a free loopback port and keeps its log in dir,
// which is created. It returns when Redis answers; ctx bounds only that wait. It asks for no password,
// and as root it runs as root, which suits tests alone. The error is ErrNotInstalled if there is no
// redis-server 7 or later on PATH.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	return startRedis(ctx, &Redis{dir: dir})
}

// StartGuardedRedis is StartRedis for a server that others on this machine must not use: it asks for
// a random password, which URL has. If this process is root, it runs as user redis or else postgres,
// if there is one.
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

// StartDurableRedis is StartRedis for a server that Restart starts again with its data.
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
	if r.bus != nil { // the cluster knows its ports
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
	dir, settings := r.dir, "" // of this process's user, whom replication may need to write there
	if r.as != nil {
		dir = "/" // where every user can be; this one may not get to its own, and writes nothing
	}
	if r.password != "" {
		settings = "requirepass " + r.password + "\n" // by standard input: everybody can read arguments
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
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", r.bus.String(), "--cluster-config-file", clusterConfig,
			"--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000", "--repl-diskless-sync-delay", "0")
	}
	args = append(args, "-")
	if r.monitors != nil {
		var err error
		if args, err = r.sentinelArgs(port); err != nil {
			return nil, err
		}
	}
	// The server outlives ctx.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), r.binary, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(settings)
	// A frozen Redis would keep any other signal pending for ever; it has nothing to save.
	cmd.SysProcAttr = sysProcAttr(syscall.SIGKILL, r.as.credential())
	p, err := spawn(cmd, filepath.Join(r.dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	err = p.awaitReady(ctx, func(ctx context.Context) error { return ping(ctx, port, r.password, p.cmd.Process.Pid) })
	return p, err
}

// ping asks the Redis on a port whether it is the process that was started there: the port may have
// been taken by another Redis in between.
func ping(ctx context.Context, port *Port, password string, pid int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", port.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	commands := "INFO server\r\nQUIT\r\n" // so that a refusal, which names no process, ends as well
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

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Addr is host:port, the same for the life of r.
func (r *Redis) Addr() string { return r.port.Addr() }

// URL is the address as a redis:// URL, with the password if there is one.
func (r *Redis) URL() string {
	u := url.URL{Scheme: "redis", Host: r.Addr(), Path: "/0"}
	if r.password != "" {
		u.User = url.UserPassword("", r.password)
	}
	return u.String()
}

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

// Restart kills the server if it still runs and starts one on the same port, which is empty unless r is durable. It returns
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
