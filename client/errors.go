package sluice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ErrorKind is one sort of failure.
type ErrorKind string

// The kinds of failure.
const (
	KindTimeout     ErrorKind = "timeout"     // no answer within the time-out
	KindConnection  ErrorKind = "connection"  // the server cannot be reached, or the connection broke
	KindUnavailable ErrorKind = "unavailable" // the server answered that it cannot decide
	KindProtocol    ErrorKind = "protocol"    // something answered, but not as Sluice does
	KindKey         ErrorKind = "key"         // the key is wrong, lacks the permission, or its tenant is suspended
	KindRequest     ErrorKind = "request"     // the request itself is not valid: see Fields
)

// Error says why the server decided nothing. It holds no key and no URL.
type Error struct {
	Kind      ErrorKind
	Status    int          // the HTTP status; 0 if there was no answer
	Type      string       // of the problem document (RFC 9457), such as urn:sluice:problem:unauthorized
	Detail    string       // what to do about it
	RequestID string       // the server's log has it, too
	Fields    []FieldError // what is wrong with the request
	Err       error        // the cause, if it is in this process
}

// FieldError says what is wrong with one value of a request.
type FieldError struct {
	Pointer string `json:"pointer"` // a JSON pointer (RFC 6901), such as /user_id
	Detail  string `json:"detail"`
}

// Error is one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("sluice: " + string(e.Kind))
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d)", e.Status)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, field := range e.Fields {
		fmt.Fprintf(&b, "; %s %s", field.Pointer, field.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// refused is the error of a check that is not worth sending.
func refused(pointer, detail string) *Error {
	return &Error{Kind: KindRequest, Detail: "The check is not valid.", Fields: []FieldError{{pointer, detail}}}
}

// failure classifies an error of the transport. The URL goes: it says nothing that the configuration does not.
func failure(err error) *Error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return &Error{Kind: KindTimeout, Err: err}
	}
	return &Error{Kind: KindConnection, Err: err}
}

// problem classifies an answer that is no decision.
func problem(status int, body []byte) *Error {
	e := &Error{Kind: KindProtocol, Status: status}
	var document struct {
		Type      string       `json:"type"`
		Title     string       `json:"title"`
		Detail    string       `json:"detail"`
		RequestID string       `json:"request_id"`
		Errors    []FieldError `json:"errors"`
	}
	if json.Unmarshal(body, &document) != nil || document.Type == "" {
		e.Detail = fmt.Sprintf("%d %s is no answer of a Sluice server; is the URL right?", status, http.StatusText(status))
		if status >= http.StatusInternalServerError {
			e.Kind, e.Detail = KindUnavailable, ""
		}
		return e
	}
	e.Type, e.Detail, e.RequestID, e.Fields = document.Type, document.Detail, document.RequestID, document.Errors
	if e.Detail == "" {
		e.Detail = document.Title
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Kind = KindKey
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		e.Kind = KindUnavailable
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		e.Kind = KindRequest
	}
	return e
}
