//go:build unix && !linux

package devdb

import "syscall"

// sysProcAttr puts a server in its own process group, so that an interrupt typed at the terminal
// reaches only this process, which then stops its servers in order. Only Linux can also send the
// server a signal when this process is killed; elsewhere the server then stays until it is stopped
// by hand, and StartPostgres says which process that is.
func sysProcAttr(_ syscall.Signal, as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: as}
}
