package checkapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// Readiness is what readyz reports.
type Readiness struct {
	// RulesLoaded says that rules were loaded at least once, which makes the process ready.
	RulesLoaded bool
	// RulesAge is how long ago the rules were last known to be those of the database.
	RulesAge time.Duration
	// Database and Redis are single words, such as up, down, or memory for buckets that are not
	// in Redis. Anybody who reaches the port can read them.
	Database, Redis string
	// Warnings are sentences about what keeps limits from holding, such as a setting of Redis.
	Warnings []string
}

// healthz handles GET /healthz.
func (s *surface) healthz(w http.ResponseWriter, _ *http.Request) error {
	return writeState(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

// readyz handles GET /readyz.
func (s *surface) readyz(w http.ResponseWriter, _ *http.Request) error {
	now := s.Readiness()
	status, word, age := http.StatusServiceUnavailable, "waiting for rules", []byte("null")
	if now.RulesLoaded {
		status, word = http.StatusOK, "ready"
		age = appendMillis(nil, now.RulesAge)
	}
	b := httpapi.AppendString([]byte(`{"status":`), word)
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
	return writeState(w, status, append(b, `]}`...))
}

func writeState(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a caller that went away needs no answer
	return nil
}
