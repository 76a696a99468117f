package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// The limits of a connection, on both surfaces. They hold off callers that are slow on purpose; an honest caller is far
// from all of them.
const (
	ReadTimeout  = 10 * time.Second // headers and body
	WriteTimeout = 30 * time.Second // from the end of the headers to the end of the answer
	// IdleTimeout is above the 60 s after which common load balancers drop their side, so that
	// they never send into a connection that is closing here.
	IdleTimeout    = 2 * time.Minute
	MaxHeaderBytes = 16 << 10

	readHeaderTimeout = 5 * time.Second
)

// NewServer returns a server for a surface, not yet listening. Bodies are limited where they are
// read; see ReadBody. A Deadline of Requests should be below 30 s, when connections are cut.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		// net/http reports broken handshakes and the like; none of it needs an operator.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
