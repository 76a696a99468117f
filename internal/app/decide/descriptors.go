package decide

import (
	"log/slog"
	"syscall"
)

const spareFiles = 512 // for reconnecting to Redis, the database and the like

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

func connectionsWithin(files uint64) int {
	const most = 1 << 30 // "unlimited" is larger than an int
	return int(min(files-min(files/2, spareFiles), most))
}
