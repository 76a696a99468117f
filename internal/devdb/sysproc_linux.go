package devdb

import "syscall"

// sysProcAttr puts a server in its own process group, so that an interrupt typed at the terminal
// reaches only this process, which then stops its servers in order. Should this process be killed,
// Linux sends the server onDeath.
func sysProcAttr(onDeath syscall.Signal, as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath, Credential: as}
}
