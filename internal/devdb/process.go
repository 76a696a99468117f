package devdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	startPatience = 30 * time.Second // recovery after a crash included
	stopPatience  = 30 * time.Second // a busy machine included
	probeInterval = 10 * time.Millisecond
	portAttempts  = 5
	tailBytes     = 2048 // of a log, in an error message
)

// process is one running server with its log file.
type process struct {
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when the process has ended
}

// spawn starts a command whose output goes to a fresh log file; the log of the run before is kept
// beside it as logPath.1.
func spawn(cmd *exec.Cmd, logPath string) (*process, error) {
	if err := os.Rename(logPath, logPath+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("keep the last log: %w", err)
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	cmd.Stdout, cmd.Stderr = log, log
	p := &process{cmd: cmd, logPath: logPath, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// Linux sends the parent death signal when the thread that started the child ends, not
		// when the parent does, so this thread is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// stop asks the process to end, insists after stopPatience, and returns when it has ended.
func (p *process) stop(ask syscall.Signal) error {
	if !p.running() {
		return nil
	}
	if err := p.signal(ask); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopPatience):
	}
	p.kill()
	return fmt.Errorf("%s did not stop within %s and was killed; its log ends:\n%s", p.cmd.Path, stopPatience, p.tail())
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", s, p.cmd.Path, err)
	}
	return nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// tail returns the end of the log.
func (p *process) tail() string {
	log, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-tailBytes):]))
}

// awaitReady probes the process until it answers. A process that ended or does not answer in time
// is an error with the end of its log; in the second case it is killed.
func (p *process) awaitReady(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while starting; its log %s ends:\n%s", p.cmd.Path, p.logPath, p.tail())
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("%s is not ready (%w); its log %s ends:\n%s", p.cmd.Path, err, p.logPath, p.tail())
		case <-tick.C:
		}
	}
}

// serve starts a server on a port of its own. Where ports cannot be kept, another program may take it before
// the server does; then the next one is tried.
func serve(start func(port *Port) (*process, error)) (p *process, port *Port, err error) {
	for range portAttempts {
		if port, err = ReservePort(); err != nil {
			return nil, nil, err
		}
		if p, err = start(port); err == nil {
			return p, port, nil
		}
		port.Release()
		if !strings.Contains(err.Error(), "ddress already in use") {
			break
		}
	}
	return nil, nil, err
}

// newPassword returns a random password with 130 bits of entropy that needs no quoting in a URL.
func newPassword() string { return rand.Text() }
