package adminapi

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
)

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotency-Replayed"

	// maxKeptAnswer is far above the answers that hold secrets, and below that of an import.
	maxKeptAnswer = 64 << 10

	// Leases are longer than a request, or an import, can run. A repetition waits that long after a crash.
	requestLease = time.Minute
	fileLease    = 4 * time.Minute
)

func idempotencyKeyOf(r *http.Request) (string, error) {
	given := r.Header.Values(idempotencyHeader)
	if len(given) == 0 {
		return "", nil
	}
	key := given[0]
	isPlain := !strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })
	if len(given) > 1 || len(key) < 16 || len(key) > 255 || !isPlain {
		return "", httpapi.InvalidRequest.Problem(
			"Send one Idempotency-Key of 16 to 255 visible ASCII characters, such as a random UUID.")
	}
	return key, nil
}

func (*surface) readIdempotencyKey(q *apiRequest) error {
	if !q.operation.takesKey {
		return nil
	}
	key, err := idempotencyKeyOf(q.r)
	if err != nil || key == "" {
		return err
	}
	var tenant [8]byte
	binary.BigEndian.PutUint64(tenant[:], uint64(q.tenant.ID))
	caller := q.caller().Account
	q.idempotencyKey = key
	q.idempotent = auth.IdempotentRequest{
		Tenant: q.tenant.ID, Caller: caller,
		Key: digestOf("sluice idempotency key", tenant[:], []byte(key)),
		Fingerprint: digestOf("sluice idempotent request", []byte(caller), []byte(q.r.URL.RequestURI()),
			[]byte(strings.Join(q.r.Header.Values("If-Match"), "\n")), q.body),
	}
	return nil
}

// digestOf hashes parts so that none can be moved into its neighbour.
func digestOf(use string, parts ...[]byte) (digest auth.Digest) {
	hash := sha256.New()
	for _, part := range append([][]byte{[]byte(use)}, parts...) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write(part)
	}
	hash.Sum(digest[:0])
	return digest
}

func (q *apiRequest) creditID() string {
	if q.idempotencyKey == "" {
		return ""
	}
	return hex.EncodeToString(q.idempotent.Key[:])
}

// handleIdempotent answers a repeated request as before. Only successes are kept. The request's change marks it as
// carried out, except for changes of buckets, which their store does once.
func (s *surface) handleIdempotent(w http.ResponseWriter, q *apiRequest) error {
	lease := requestLease
	if q.operation.isUpload() {
		lease = fileLease
	}
	ctx := q.r.Context()
	begun, answer, err := s.Idempotency.BeginIdempotent(ctx, q.idempotent, lease)
	switch {
	case err != nil:
		return q.idempotencyProblem(err)
	case answer != nil:
		held := &heldAnswer{ResponseWriter: w}
		if err := q.replay(held, answer); err != nil {
			return err
		}
		s.send(q, held)
		return nil
	}
	if !strings.Contains(q.route.path, "/buckets/") {
		q.r = q.r.WithContext(auth.WithIdempotency(ctx, begun))
	}
	held := hold(w, q)
	ctx = context.WithoutCancel(ctx) // what happened is kept even if the caller has left
	isKept := held.status >= 200 && held.status < 300 && held.body.Len() <= maxKeptAnswer
	if isKept {
		var sealed []byte
		if sealed, err = q.seal(held); err == nil {
			err = s.Idempotency.KeepAnswer(ctx, begun, sealed)
		}
	}
	if !isKept || err != nil { // so that a request that changed nothing does not block its repetition
		err = errors.Join(err, s.Idempotency.ForgetIdempotent(ctx, begun))
	}
	if err != nil {
		s.Requests.Log.WarnContext(ctx, "the answer to a repeatable request is not kept", "request_id", q.requestID,
			"error", err)
	}
	s.send(q, held)
	return nil
}

func (q *apiRequest) idempotencyProblem(err error) error {
	var running auth.IdempotencyRunningError
	switch {
	case errors.Is(err, auth.ErrIdempotencyReused):
		return httpapi.KeyReused.Problem(
			"This Idempotency-Key was sent with another request; choose a new one for each request.")
	case errors.Is(err, auth.ErrIdempotencyAnswerLost):
		return httpapi.AnswerLost.Problem(
			"This request was carried out once, but its answer was lost. Read what changed. If it made a secret, " +
				"revoke that and make another.")
	case errors.As(err, &running):
		setSeconds(q.w.Header(), "Retry-After", min(5, wholeSeconds(running.Left)))
		return httpapi.InProgress.Problem(
			"The first request with this Idempotency-Key is still running; send this again in a moment.")
	}
	return err
}

func hold(w http.ResponseWriter, q *apiRequest) *heldAnswer {
	held := &heldAnswer{ResponseWriter: w, status: http.StatusOK}
	q.route.handler(held, q.r)
	return held
}

type heldAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (h *heldAnswer) WriteHeader(status int)      { h.status = status }
func (h *heldAnswer) Write(b []byte) (int, error) { return h.body.Write(b) }

// send gives the slot back first, because the caller may read slowly.
func (s *surface) send(q *apiRequest, answer *heldAnswer) {
	defer s.countUnread(q, answer.body.Len())()
	q.slot.Release()
	answer.ResponseWriter.WriteHeader(answer.status)
	_, _ = answer.ResponseWriter.Write(answer.body.Bytes()) // a caller that went away can ask again
}

type keptAnswer struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	Body   []byte            `json:"body"`
}

// keptHeaders include the request id, because the audit log has the first one.
var keptHeaders = []string{"Content-Type", "ETag", "Location", httpapi.RequestIDHeader}

// seal encrypts an answer by a key that only the holder of the Idempotency-Key can derive, and binds it to its request.
func (q *apiRequest) seal(held *heldAnswer) ([]byte, error) {
	kept := keptAnswer{Status: held.status, Header: map[string]string{}, Body: held.body.Bytes()}
	for _, name := range keptHeaders {
		if value := held.Header().Get(name); value != "" {
			kept.Header[name] = value
		}
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("seal an answer: %w", err)
	}
	box, err := q.box()
	if err != nil {
		return nil, err
	}
	return box.Seal(nil, nil, text, q.idempotent.Fingerprint[:]), nil //nolint:gosec // the box makes the nonce
}

func (q *apiRequest) box() (box cipher.AEAD, err error) {
	var block cipher.Block
	key, err := hkdf.Key(sha256.New, []byte(q.idempotencyKey), q.idempotent.Key[:], "sluice idempotent answer", 32)
	if err == nil {
		block, err = aes.NewCipher(key)
	}
	if err == nil {
		box, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		return nil, fmt.Errorf("derive the key of an answer: %w", err)
	}
	return box, nil
}

func (q *apiRequest) replay(w http.ResponseWriter, sealed []byte) error {
	box, err := q.box()
	if err != nil {
		return err
	}
	text, err := box.Open(nil, nil, sealed, q.idempotent.Fingerprint[:])
	if err != nil {
		return fmt.Errorf("open a kept answer: %w", err)
	}
	var kept keptAnswer
	if err := json.Unmarshal(text, &kept); err != nil {
		return fmt.Errorf("open a kept answer: %w", err)
	}
	for name, value := range kept.Header {
		w.Header().Set(name, value)
	}
	w.Header().Set(replayedHeader, "true")
	w.WriteHeader(kept.Status)
	_, _ = w.Write(kept.Body)
	return nil
}
