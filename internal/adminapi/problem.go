package adminapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// handlerFailed answers a request with the error of its handler or of the generated code before it.
func (s *surface) handlerFailed(w http.ResponseWriter, r *http.Request, err error) {
	q, _ := r.Context().Value(apiRequestKey{}).(*apiRequest)
	if _, isHeld := w.(*heldAnswer); q != nil && !isHeld {
		q.slot.Release() // the caller may read slowly
	}
	answer := asProblem(err)
	var overCapacity rules.CapacityError
	if s.CapacityRefused != nil && errors.As(err, &overCapacity) {
		s.CapacityRefused(overCapacity.Thing)
	}
	var problem *httpapi.Problem
	if errors.As(answer, &problem) {
		sayWhen(w, problem)
	}
	if problem != nil && problem.Status == http.StatusServiceUnavailable {
		s.Requests.Log.WarnContext(r.Context(), "answered with 503",
			"request_id", httpapi.RequestID(w), "method", r.Method, "path", r.URL.Path, "reason", err)
	}
	httpapi.WriteError(w, r, s.Requests.Log, answer)
}

// asProblem turns the domain's errors into problems. Other errors are logged and answered as internal.
func asProblem(err error) error {
	var fields rules.FieldErrors
	var tooSoon auth.TooSoonError
	var onlyOwner auth.OnlyOwnerError
	var unknown rules.UnknownToProcessError
	var overCapacity rules.CapacityError
	var missing *openapi.RequiredHeaderError
	var badValue *openapi.InvalidParamFormatError
	var twice *openapi.TooManyValuesForParamError
	switch {
	case errors.As(err, new(*httpapi.Problem)):
		return err
	case errors.As(err, &fields):
		return fieldsProblem("", fields)
	case errors.As(err, &overCapacity):
		return httpapi.OverCapacity.Problem("Nothing was changed: " + overCapacity.Error() + ".")
	case errors.As(err, &tooSoon):
		return httpapi.TooSoon.Problem(fmt.Sprintf("Too many attempts have failed; wait %d seconds.",
			wholeSeconds(tooSoon.Wait)))
	case errors.Is(err, auth.ErrPasswordsOff):
		return httpapi.Forbidden.Problem("Signing in by password is off here; sign in with one of the providers.")
	case errors.Is(err, auth.ErrBusy):
		return httpapi.Unavailable.Problem("Too many people are signing in; try again.")
	case errors.As(err, &missing):
		return httpapi.Unconditional.Problem(
			"Send the ETag that you have read as If-Match, or If-Match: * to replace any version.")
	case errors.As(err, &twice):
		return httpapi.InvalidRequest.Problem("Send " + twice.ParamName + " once.")
	case errors.As(err, &badValue):
		// Queries were checked before, so this is a path that names nothing, such as rule "abc".
		return httpapi.NotFound.Problem("There is nothing with this id.")
	case errors.Is(err, rules.ErrNotFound):
		return httpapi.NotFound.Problem("There is nothing with this id; it may have been removed.")
	case errors.Is(err, rules.ErrExists):
		return httpapi.Conflict.Problem("This name is taken; choose another, or change the existing one.")
	case errors.Is(err, rules.ErrInUse):
		return httpapi.InUse.Problem("It is still in use; change what uses it first.")
	case errors.Is(err, rules.ErrChanged):
		return httpapi.Changed.Problem(readAgain)
	case errors.As(err, &unknown):
		return httpapi.Conflict.Problem("Nothing was changed, because " + unknown.Error() + ".")
	case errors.Is(err, rules.ErrFinal):
		return httpapi.Conflict.Problem("This cannot be undone.")
	case errors.As(err, &onlyOwner):
		return httpapi.Conflict.Problem("Nobody else owns " + strings.Join(onlyOwner.Tenants, ", ") +
			"; make somebody else an owner first.")
	case errors.Is(err, auth.ErrLastAdmin):
		return httpapi.Conflict.Problem("There must be a platform admin who can sign in; make somebody else one first.")
	case errors.Is(err, auth.ErrLastOwner):
		return httpapi.Conflict.Problem("A tenant needs an owner; make somebody else one first.")
	case sharesProblem(err) != nil:
		return sharesProblem(err)
	case errors.Is(err, rules.ErrBeingWritten):
		return httpapi.Unavailable.Problem(
			"Another change of this tenant, such as an import, is still being written, and nothing was done; try " +
				"again in a moment.")
	case errors.Is(err, context.Canceled):
		return httpapi.Unavailable.Problem("The request was canceled before it was answered.")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, rules.ErrAway):
		return httpapi.Unavailable.Problem("The database does not answer; try again.")
	}
	return err
}

const readAgain = "Somebody else changed it since you read it; read it again, and decide anew."

func wrongBody(pointer, detail string) error {
	return httpapi.BodyProblem([]httpapi.FieldError{{Pointer: pointer, Detail: detail}})
}

func fieldsProblem(pointer string, wrong rules.FieldErrors) error {
	return httpapi.BodyProblem(pointers(pointer, wrong))
}

func pointers(pointer string, wrong rules.FieldErrors) []httpapi.FieldError {
	var fields []httpapi.FieldError
	for _, f := range wrong {
		name := strings.NewReplacer("[", "/", "].", "/", "]", "", ".", "/").Replace(f.Field)
		fields = append(fields, httpapi.FieldError{Pointer: pointer + "/" + name, Detail: f.Message})
	}
	return fields
}

func wholeSeconds(d time.Duration) int64 { return int64(math.Ceil(max(d, time.Second).Seconds())) }

func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

func expected(ifMatch string) (rules.Expected, error) {
	ifMatch = strings.TrimSpace(ifMatch)
	if ifMatch == "*" {
		return rules.AnyVersion, nil
	}
	text, isWeak := strings.CutPrefix(ifMatch, "W/")
	quoted, ok := strings.CutPrefix(text, `"`)
	quoted, ended := strings.CutSuffix(quoted, `"`)
	version, err := strconv.ParseInt(quoted, 10, 64)
	if !ok || !ended || err != nil || version < 0 || isWeak {
		return 0, httpapi.InvalidRequest.Problem(`If-Match must be the one ETag that you have read, such as "3", or *.`)
	}
	return rules.Expected(version), nil
}

func holds(expected rules.Expected, version int64) bool {
	return expected == rules.AnyVersion || int64(expected) == version
}

// patchAttempts caps the tries of a patch with If-Match: *. A try is lost only if somebody else's succeeded, so 50
// tries suffice beside 49 concurrent writers.
const patchAttempts = 50

// patched reads, changes and stores a row by attempt. With If-Match: * a lost race is tried again on the new row.
func patched[Row any](at rules.Expected, attempt func() (Row, error)) (row Row, err error) {
	for range patchAttempts {
		if row, err = attempt(); at != rules.AnyVersion || !errors.Is(err, rules.ErrChanged) {
			break
		}
	}
	return row, err
}

// lost answers a lost race with the present ETag, and returns other errors and nil unchanged. current reads the present
// version, which is 0 if nothing is there.
func lost(ctx context.Context, err error, current func() (int64, error)) error {
	if !errors.Is(err, rules.ErrChanged) {
		return err
	}
	version, readErr := current()
	if readErr != nil {
		return fmt.Errorf("read what has changed: %w", readErr)
	}
	if version != 0 {
		requestOf(ctx).w.Header().Set("ETag", etag(version))
	}
	return httpapi.Changed.Problem(readAgain)
}
