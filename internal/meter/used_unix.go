//go:build unix

package meter

import (
	"syscall"
	"time"
)

// Used returns the processor time that the process has used.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot happen; see getrusage(2)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
