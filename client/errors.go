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

// ErrorKind is a kind of failure.
type ErrorKind string

// The kinds.
const (
	KindTimeout     ErrorKind = "timeout"     // no answer within the time-out
	KindConnection  ErrorKind = "connection"  // the server cannot be reached, or the connection broke
	KindUnavailable ErrorKind = "unavailable" // the server answered that it cannot decide
	KindProtocol    ErrorKind = "protocol"    // the answer is not one of Sluice's
	KindKey         ErrorKind = "key"         // the key is invalid, lacks the permission, or its tenant is suspended
	KindRequest     ErrorKind = "request"     // the request is invalid: see Fields
)

// Error is why the server did not decide, without the key and the URL.
type Error struct {
	Kind      ErrorKind
	Status    int          // HTTP status; 0 without an answer
	Type      string       // of the problem document (RFC 9457), such as urn:sluice:problem:unauthorized
	Detail    string       // the remedy
	RequestID string       // id of the request in the server's log
	Fields    []FieldError // mistakes in the request
	Err       error        // the cause within this process, if any
}

// FieldError is a mistake in a value of a request.
type FieldError struct {
	Pointer string `json:"pointer"` // a JSON pointer (RFC 6901), such as /user_id
	Detail  string `json:"detail"`
}

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

func (e *Error) Unwrap() error { return e.Err }

// refused is the error of an invalid check that is not sent.
func refused(pointer, detail string) *Error {
	return &Error{Kind: KindRequest, Detail: "The check is not valid.", Fields: []FieldError{{pointer, detail}}}
}

// failure classifies a transport error, and removes the URL.
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
		e.Detail = fmt.Sprintf("%d %s is no answer of a Sluice server; is the URL right?", status,
			http.StatusText(status))
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
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests,
		status == http.StatusRequestTimeout:
		e.Kind = KindUnavailable
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge,
		status == http.StatusUnprocessableEntity:
		e.Kind = KindRequest
	}
	return e
}
