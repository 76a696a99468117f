package adminapi_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func jsonOf(value any) ([]byte, error) { return json.Marshal(value) }

func (w *world) wantNoSecrets() {
	w.t.Helper()
	secrets := append(slices.Clone(w.secrets), password, passwordHash())
	for _, got := range w.answers {
		for _, cookie := range got.header.Values("Set-Cookie") {
			if _, value, _ := strings.Cut(cookie, "="); value != "" && value[0] != ';' {
				value, _, _ = strings.Cut(value, ";")
				secrets = append(secrets, value)
			}
		}
		switch got.operation {
		case "createKey", "rotateKey", "createServiceKey", "rotateServiceKey", "createAlert", "rotateAlertSecret",
			"createAuditWebhook", "rotateAuditSecret":
			var made struct {
				Secret string `json:"secret"`
			}
			if json.Unmarshal([]byte(got.body), &made) == nil && made.Secret != "" {
				secrets = append(secrets, made.Secret)
			}
		case "invite":
			var made struct {
				Token string `json:"token"`
			}
			if json.Unmarshal([]byte(got.body), &made) == nil && made.Token != "" {
				secrets = append(secrets, made.Token)
			}
		}
	}
	for i, secret := range secrets { // of an API key its last part is the secret
		if _, part, ok := auth.SplitKeyToken(secret); ok {
			secrets[i] = part
		}
	}
	places := map[string]string{"the log": w.log.String(), "the metrics": w.scrape()}
	by := w.platformAdmin()
	for _, tenant := range []rules.Tenant{w.acme, w.other, w.closed} {
		for _, export := range []string{
			"audit/export", "audit/export?format=jsonl", "users/export", "export",
			"api-keys", "members", "invitations", "alerts", "audit-webhook",
		} {
			got := w.send(by, "GET", "/api/v1/tenants/"+tenant.Slug+"/"+export, nil)
			if got.status != http.StatusNotFound || export != "audit-webhook" {
				w.want(got, http.StatusOK)
			}
			places[tenant.Slug+"'s "+export] = got.body
		}
	}
	var answers strings.Builder
	for _, got := range w.answers {
		if !slices.Contains([]string{
			"createKey", "rotateKey", "createServiceKey", "rotateServiceKey", "invite",
			"createAlert", "rotateAlertSecret", "createAuditWebhook", "rotateAuditSecret",
		}, got.operation) ||
			got.status >= 300 {
			answers.WriteString(got.body)
		}
	}
	places["answers"] = answers.String()
	places["the database"] = w.dump()
	w.t.Logf("%d secrets are looked for in %d bytes of log and %d of the database", len(secrets),
		len(places["the log"]), len(places["the database"]))
	for name, text := range places {
		for _, secret := range secrets {
			if name == "the database" && secret == passwordHash() {
				continue // its place
			}
			if strings.Contains(text, secret) || strings.Contains(text, hex.EncodeToString([]byte(secret))) {
				w.t.Errorf("a secret is in %s: %s", name, secret)
			}
		}
	}
}

func (w *world) scrape() string {
	recorder := httptest.NewRecorder()
	w.metrics.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	return recorder.Body.String()
}

func (w *world) dump() (text string) {
	w.t.Helper()
	connection := must(pgx.Connect(w.ctx(), w.url))(w.t)
	defer func() { _ = connection.Close(context.WithoutCancel(w.ctx())) }()
	rows := must(connection.Query(w.ctx(),
		"SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"))(w.t)
	tables := must(pgx.CollectRows(rows, pgx.RowTo[string]))(w.t)
	if !slices.Contains(tables, "alert") {
		w.t.Errorf("the tables are %v", tables)
	}
	for _, table := range tables {
		var rows string
		query := fmt.Sprintf(`SELECT coalesce(string_agg(t::text, E'\n'), '') FROM %s AS t`,
			pgx.Identifier{table}.Sanitize())
		if err := connection.QueryRow(w.ctx(), query).Scan(&rows); err != nil {
			w.t.Fatal(err)
		}
		text += rows
	}
	return text
}
