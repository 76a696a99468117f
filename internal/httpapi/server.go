package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// The limits of a connection, on both surfaces, against callers that are slow on purpose.
const (
	ReadTimeout  = 10 * time.Second // headers and body
	WriteTimeout = 30 * time.Second // from the end of the headers to the end of the answer
	// IdleTimeout exceeds the 60 s after which common load balancers close idle connections, so that they never use one
	// that is closing here.
	IdleTimeout    = 2 * time.Minute
	MaxHeaderBytes = 16 << 10

	readHeaderTimeout = 5 * time.Second
)

// NewServer returns a server that is not listening yet, for a Deadline below WriteTimeout.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		// net/http reports broken handshakes and the like, which need no operator
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
