package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// The limits of a connection. They hold off callers that are slow on purpose; a caller that means
// well is far from all of them.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second // headers and body
	writeTimeout      = 30 * time.Second // from the end of the headers to the end of the answer
	// idleTimeout is above the 60 s after which common load balancers drop their side, so that
	// they never send into a connection that is closing here.
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
)

// NewServer returns a server for a surface, not yet listening. Bodies are limited where they are
// read; see ReadBody. A Deadline of Requests should be below 30 s, when connections are cut.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// net/http reports broken handshakes and the like; none of it needs an operator.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
