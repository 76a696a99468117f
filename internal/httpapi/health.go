package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

// Readiness is what readyz reports.
type Readiness struct {
	// RulesLoaded: rules were loaded at least once. This makes the process ready.
	RulesLoaded bool
	// Draining: the process was told to stop and answers only until others take its requests. This makes it unready.
	Draining bool
	// RulesAge is how long ago the rules were last known to be those of the database.
	RulesAge time.Duration
	// Database and Redis are single words, such as up, down, or memory without Redis. They are public.
	Database, Redis string
	// Warnings tell people what keeps limits from holding, such as a setting of Redis.
	Warnings []string
}

// HealthHandler answers GET /healthz and /readyz as the check endpoint does. It serves the metrics port, which probes
// reach however many connections the check port has.
func HealthHandler(version string, readiness func() Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, Alive(version))
	})
	mux.HandleFunc("GET "+ReadyPath, func(w http.ResponseWriter, _ *http.Request) {
		now := readiness()
		writeHealth(w, now.Status(), now.AppendJSON(nil))
	})
	return mux
}

func writeHealth(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a prober that has gone needs no answer
}

// Where probes ask.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// Alive is the answer of healthz, with the version of the process.
func Alive(version string) []byte {
	return append(AppendText([]byte(`{"status":"ok","version":`), version), '}')
}

// Status returns 503 until the process is ready, and while it drains.
func (now *Readiness) Status() int {
	if now.RulesLoaded && !now.Draining {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// AppendJSON appends the answer of readyz.
func (now *Readiness) AppendJSON(b []byte) []byte {
	word, age := "waiting for rules", []byte("null")
	if now.RulesLoaded {
		word, age = "ready", AppendMillis(nil, now.RulesAge)
	}
	if now.Draining {
		word = "draining"
	}
	b = AppendString(append(b, `{"status":`...), word)
	b = strconv.AppendBool(append(b, `,"rules_loaded":`...), now.RulesLoaded)
	b = append(append(b, `,"rules_age_ms":`...), age...)
	b = AppendText(append(b, `,"database":`...), now.Database)
	b = AppendText(append(b, `,"redis":`...), now.Redis)
	b = append(b, `,"warnings":[`...)
	for i, warning := range now.Warnings {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, warning)
	}
	return append(b, `]}`...)
}
