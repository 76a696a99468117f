package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

// Readiness is the content of readyz.
type Readiness struct {
	Open            bool // rules were loaded and the listeners are open
	RulesLoaded     bool
	Draining        bool          // the process only answers until others take over
	RulesAge        time.Duration // see snapshot.Watcher.Age
	Database, Redis string        // public words, such as up, down, or memory
	Warnings        []string      // of what keeps limits from holding
}

// HealthHandler answers GET /healthz and /readyz on the metrics port, which probes reach however many connections
// the check port has.
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
	_, _ = w.Write(body)
}

// The paths of probes.
const (
	HealthPath = "/healthz"
	ReadyPath  = "/readyz"
)

// Alive returns the answer of healthz.
func Alive(version string) []byte {
	return append(AppendText([]byte(`{"status":"ok","version":`), version), '}')
}

// Status returns 503 until the process is ready, and while it drains.
func (now *Readiness) Status() int {
	if now.Open && !now.Draining {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// Word returns the state as text.
func (now *Readiness) Word() string {
	switch {
	case now.Draining:
		return "draining"
	case now.Open:
		return "ready"
	}
	return "waiting for rules"
}

// AppendJSON appends the answer of readyz.
func (now *Readiness) AppendJSON(b []byte) []byte {
	age := []byte("null")
	if now.RulesLoaded {
		age = AppendMillis(nil, now.RulesAge)
	}
	b = AppendString(append(b, `{"status":`...), now.Word())
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
