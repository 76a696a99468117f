package decide

import (
	"log/slog"
	"syscall"
)

// spareFiles is how many file descriptors are reserved for Redis, the database, metrics and the admin API.
const spareFiles = 512

// checkConnections returns how many connections the check port may have. Checks must not take the last file descriptor:
// a process without one cannot reconnect to Redis or the database.
func checkConnections(configured int, log *slog.Logger) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return configured
	}
	limit := min(configured, connectionsWithin(files.Cur))
	if limit < configured {
		log.Warn("the process may open too few files for its check connections; raise `ulimit -n`",
			"files", files.Cur, "configured", configured, "limit", limit)
	}
	return limit
}

// connectionsWithin returns how many connections fit into a limit of files. Go raises the soft limit to the hard one.
func connectionsWithin(files uint64) int {
	const most = 1 << 30 // "unlimited" is larger than an int
	return int(min(files-min(files/2, spareFiles), most))
}
