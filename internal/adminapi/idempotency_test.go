package adminapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
)

const idempotencyKeyOf = "0d8b6f1e-7c1f-4e0f-9b3e-2f6a5c4d3e21"

func TestEveryPOSTMayBeRepeated(t *testing.T) {
	t.Parallel()
	eachOperation(must(description())(t), func(method, path string, o *openapi3.Operation) {
		takesKey := slices.ContainsFunc(o.Parameters, func(p *openapi3.ParameterRef) bool {
			return p.Value.Name == "Idempotency-Key"
		})
		least := o.Extensions["x-least-role"]
		changesNothing := least == "viewer" && o.Responses.Status(http.StatusAccepted) == nil
		if method != http.MethodPost || least == "anyone" || changesNothing {
			if takesKey { // callers without an account share no identity
				t.Errorf("%s %s takes an Idempotency-Key", method, path)
			}
			return
		}
		if !takesKey || o.Responses.Status(409) == nil || o.Responses.Status(422) == nil {
			t.Errorf("%s %s lacks the Idempotency-Key, or its 409 or 422", method, path)
		}
	})
}

func TestAnExportThatIsAskedForAgainIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	for _, export := range []string{"users", "audit", "violations", "usage"} {
		path, key := "/api/v1/tenants/acme/"+export+"/export", idempotencyKeyOf+export
		if export == "usage" {
			path += "?by=rule"
		}
		first := w.want(w.send(by, "POST", path, nil, "Idempotency-Key", key), http.StatusAccepted)
		again := w.want(w.send(by, "POST", path, nil, "Idempotency-Key", key), http.StatusAccepted)
		if again.body != first.body || again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("the %s are exported as %s and as %s", export, first.body, again.body)
		}
		w.exec("DELETE FROM export") // a caller has three at most
	}
}

func TestALargeAnswerDoesNotBlockTheRepetitionOfADryRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	var file strings.Builder
	file.WriteString("plans:\n")
	for i := range 500 {
		fmt.Fprintf(&file, "  - {name: plan-%d, description: %s}\n", i, strings.Repeat("x", 200))
	}
	post := func(query string) answer {
		return w.do(by, request{"POST", "/api/v1/tenants/acme/import" + query, file.String(), map[string]string{
			"Content-Type": "application/yaml", "Idempotency-Key": idempotencyKeyOf + query,
		}})
	}
	for range 2 {
		if got := w.want(post("?dry_run=true"), http.StatusOK); len(got.body) <= 64<<10 {
			t.Errorf("the answer has %d bytes", len(got.body))
		}
	}
	w.want(post(""), http.StatusOK)
	if got := w.want(post(""), http.StatusConflict); !strings.Contains(got.body, "answer-lost") {
		t.Errorf("an import that was carried out is answered %s", got.body)
	}
}

func TestARepeatedRequestIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, other := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Owner)
	const keys = "/api/v1/tenants/acme/api-keys"
	body := map[string]any{"name": "ci", "permissions": []string{"check"}}
	first := w.want(w.send(by, "POST", keys, body, "Idempotency-Key", idempotencyKeyOf), http.StatusCreated)
	again := w.want(w.send(by, "POST", keys, body, "Idempotency-Key", idempotencyKeyOf), http.StatusCreated)
	w.secrets = append(w.secrets, read[createdKey](t, first).Secret)
	if again.body != first.body || again.header.Get("ETag") != first.header.Get("ETag") ||
		again.header.Get("Location") != first.header.Get("Location") ||
		again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the repetition is answered %v %s, want %v %s", again.header, again.body, first.header, first.body)
	}
	if got, want := again.header.Values("X-Request-Id"), first.header.Get("X-Request-Id"); want == "" ||
		!slices.Equal(got, []string{want}) {
		t.Errorf("the repetition has the request ids %q, want %q alone", got, want)
	}
	if made := len(must(w.store.Keys(w.ctx(), w.acme.ID, "", 10))(t)); made != 1 {
		t.Errorf("%d keys were made", made)
	}
	for name, got := range map[string]answer{
		"another body": w.send(by, "POST", keys, map[string]any{"name": "cd", "permissions": []string{"check"}},
			"Idempotency-Key", idempotencyKeyOf),
		"another caller": w.send(other, "POST", keys, body, "Idempotency-Key", idempotencyKeyOf),
		"another route": w.send(by, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "gold"},
			"Idempotency-Key", idempotencyKeyOf),
	} {
		if got.status != http.StatusUnprocessableEntity {
			t.Errorf("%s is answered %d, want 422: %s", name, got.status, got.body)
		}
	}
	for _, wrong := range []string{
		"", "15 characters..", strings.Repeat("x", 15), strings.Repeat("x", 256),
		"sixteen letters!\u00e4",
	} {
		if got := w.send(by, "POST", keys, body, "Idempotency-Key", wrong); got.status != http.StatusBadRequest {
			t.Errorf("the key %q is answered %d, want 400: %s", wrong, got.status, got.body)
		}
	}
	w.want(w.send(w.person(w.other, auth.Owner), "POST", "/api/v1/tenants/other/plans", map[string]any{"name": "gold"},
		"Idempotency-Key", idempotencyKeyOf), http.StatusCreated)
	w.wantNoSecrets()
}

func TestARefusedRequestMayBeCorrectedUnderItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	const plans = "/api/v1/tenants/acme/plans"
	w.want(w.send(by, "POST", plans, map[string]any{"name": "free"}, "Idempotency-Key", idempotencyKeyOf),
		http.StatusConflict)
	w.want(w.send(by, "POST", plans, map[string]any{"name": "gold"}, "Idempotency-Key", idempotencyKeyOf),
		http.StatusCreated)
	w.want(w.send(by, "POST", plans, map[string]any{"name": "gold"}), http.StatusConflict)
}

func TestTheDatabaseHoldsNeitherTheKeyNorTheSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	made := read[createdKey](t, w.want(w.send(by, "POST", "/api/v1/tenants/acme/api-keys",
		map[string]any{"name": "ci", "permissions": []string{"check"}}, "Idempotency-Key", idempotencyKeyOf),
		http.StatusCreated))
	_, secret, _ := auth.SplitKeyToken(made.Secret)
	row := w.query("SELECT encode(answer, 'escape') || encode(key_digest, 'escape') || i::text FROM idempotency AS i")
	if len(row) < 100 || strings.Contains(row, secret) || strings.Contains(row, idempotencyKeyOf) ||
		strings.Contains(row, "permissions") {
		t.Errorf("the row holds %s", row)
	}
}

// halfway is a store that pauses after the first attempt has begun, and keeps no answers, as if the process had ended.
type halfway struct {
	auth.IdempotencyStore
	begun, goOn chan struct{}
	paused      atomic.Bool
}

func (h *halfway) BeginIdempotent(ctx context.Context, once auth.IdempotentRequest,
	lease time.Duration,
) (auth.IdempotentRequest, []byte, error) {
	begun, answer, err := h.IdempotencyStore.BeginIdempotent(ctx, once, lease)
	if h.paused.CompareAndSwap(false, true) {
		close(h.begun)
		<-h.goOn
	}
	return begun, answer, err
}

func (h *halfway) KeepAnswer(context.Context, auth.IdempotentRequest, []byte) error {
	return context.DeadlineExceeded
}

func TestOfTwoAtOnceOneIsCarriedOut(t *testing.T) {
	t.Parallel()
	half := &halfway{begun: make(chan struct{}), goOn: make(chan struct{})}
	w := newWorld(t, func(c *adminapi.Config) { half.IdempotencyStore = c.Idempotency; c.Idempotency = half })
	by := w.person(w.acme, auth.Owner)
	post := func() answer {
		return w.send(by, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "gold"}, "Idempotency-Key",
			idempotencyKeyOf)
	}
	first := make(chan answer)
	go func() { first <- post() }()
	<-half.begun
	if got := w.want(post(), http.StatusConflict); !strings.Contains(got.body, "request-in-progress") ||
		got.header.Get("Retry-After") == "" {
		t.Errorf("while the first runs the second is answered %v %s", got.header, got.body)
	}
	close(half.goOn)
	w.want(<-first, http.StatusCreated)
	if got := w.want(post(), http.StatusConflict); !strings.Contains(got.body, "answer-lost") {
		t.Errorf("the repetition is answered %s", got.body)
	}
}

func (w *world) query(sql string) (text string) {
	w.t.Helper()
	connection := must(pgx.Connect(w.ctx(), w.url))(w.t)
	defer func() { _ = connection.Close(context.WithoutCancel(w.ctx())) }()
	if err := connection.QueryRow(w.ctx(), sql).Scan(&text); err != nil {
		w.t.Fatal(err)
	}
	return text
}
