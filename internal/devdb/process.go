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
	startTimeout  = 30 * time.Second // includes crash recovery
	stopTimeout   = 30 * time.Second // includes a busy machine
	probeInterval = 10 * time.Millisecond
	portAttempts  = 5
	tailBytes     = 2048 // of the log, in errors
)

type process struct {
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed at its end
}

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
		// Linux sends the parent death signal when the thread that started the child ends, so this thread must live as
		// long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log tells how it ended
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

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
	case <-time.After(stopTimeout):
	}
	p.kill()
	return fmt.Errorf("%s did not stop within %s and was killed; its log ends:\n%s", p.cmd.Path, stopTimeout, p.tail())
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only after its end
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

func (p *process) tail() string {
	log, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-tailBytes):]))
}

func (p *process) awaitReady(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
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

// serve tries several ports: where they cannot be reserved, another program may take one first.
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

func newPassword() string { return rand.Text() }
