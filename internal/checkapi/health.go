package checkapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Readiness is what readyz reports.
type Readiness struct {
	// RulesLoaded: rules were loaded at least once. This makes the process ready.
	RulesLoaded bool
	// RulesAge is how long ago the rules were last known to be those of the database.
	RulesAge time.Duration
	// Database and Redis are single words, such as up, down, or memory without Redis. They are public.
	Database, Redis string
	// Warnings tell people what keeps limits from holding, such as a setting of Redis.
	Warnings []string
}

// healthz handles GET /healthz.
func (s *surface) healthz(c *fasthttp.RequestCtx, _ *snapshot.Tenant) error {
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, http.StatusOK, jsonType, []byte(alive))
	return nil
}

// readyz handles GET /readyz.
func (s *surface) readyz(c *fasthttp.RequestCtx, _ *snapshot.Tenant) error {
	now := s.Readiness()
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, now.status(), jsonType, now.appendJSON(nil))
	return nil
}

// HealthHandler answers GET /healthz and /readyz as a Server does. It also serves the metrics port, which probes reach
// however many connections the check port has.
func HealthHandler(readiness func() Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, []byte(alive))
	})
	mux.HandleFunc("GET "+readyPath, func(w http.ResponseWriter, _ *http.Request) {
		now := readiness()
		writeHealth(w, now.status(), now.appendJSON(nil))
	})
	return mux
}

func writeHealth(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", jsonType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a prober that has gone needs no answer
}

const alive = `{"status":"ok"}`

func (now *Readiness) status() int {
	if now.RulesLoaded {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

func (now *Readiness) appendJSON(b []byte) []byte {
	word, age := "waiting for rules", []byte("null")
	if now.RulesLoaded {
		word, age = "ready", appendMillis(nil, now.RulesAge)
	}
	b = httpapi.AppendString(append(b, `{"status":`...), word)
	b = strconv.AppendBool(append(b, `,"rules_loaded":`...), now.RulesLoaded)
	b = append(append(b, `,"rules_age_ms":`...), age...)
	b = appendText(append(b, `,"database":`...), now.Database)
	b = appendText(append(b, `,"redis":`...), now.Redis)
	b = append(b, `,"warnings":[`...)
	for i, warning := range now.Warnings {
		if i > 0 {
			b = append(b, ',')
		}
		b = httpapi.AppendString(b, warning)
	}
	return append(b, `]}`...)
}
