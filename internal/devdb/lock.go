package devdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const lockTimeout = 5 * time.Second // covers a server that shuts down because its parent died

// lockDir locks a server's directory. The server and its children inherit the open file, so the lock is held until the
// last of them has ended.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = lock.Close()
			return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = lock.Close()
			return nil, fmt.Errorf("directory %s is in use by a running server%s", dir, serverPID(dir))
		case <-tick.C:
		}
	}
}

func serverPID(dir string) string {
	pidFile, err := os.ReadFile(filepath.Join(dir, dataDir, "postmaster.pid"))
	if err != nil {
		return ""
	}
	pid, _, _ := strings.Cut(string(pidFile), "\n")
	return " (process " + pid + ")"
}
