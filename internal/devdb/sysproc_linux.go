package devdb

import "syscall"

// sysProcAttr puts a server into its own process group, so that an interrupt at the terminal reaches only this process,
// which then stops its servers cleanly.
func sysProcAttr(onDeath syscall.Signal, as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath, Credential: as}
}
