package checkapi

import "time"

// Routes are all routes, as "POST /v1/check".
func Routes() []string {
	var all []string
	for _, r := range newSurface(Config{}).routes {
		all = append(all, r.method+" "+r.path)
	}
	return all
}

// Timeouts are those of a server's connections.
func (s *Server) Timeouts() map[string]time.Duration {
	return map[string]time.Duration{
		"ReadTimeout": s.http.ReadTimeout, "WriteTimeout": s.http.WriteTimeout, "IdleTimeout": s.http.IdleTimeout,
	}
}

// SetWriteTimeout gives answers less time, before the server serves.
func (s *Server) SetWriteTimeout(d time.Duration) { s.http.WriteTimeout = d }

// SetReadTimeout gives requests less time, before the server serves.
func (s *Server) SetReadTimeout(d time.Duration) { s.http.ReadTimeout = d }
