package checkapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

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
func (s *surface) healthz(c *fasthttp.RequestCtx) error {
	return writeState(c, http.StatusOK, []byte(`{"status":"ok"}`))
}

// readyz handles GET /readyz.
func (s *surface) readyz(c *fasthttp.RequestCtx) error {
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
	return writeState(c, status, append(b, `]}`...))
}

func writeState(c *fasthttp.RequestCtx, status int, body []byte) error {
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, status, jsonType, body)
	return nil
}
