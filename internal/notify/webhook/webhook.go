// Package webhook posts alerts and audit logs to their receivers over HTTP: as signed JSON, or alerts in the formats of
// Slack and PagerDuty.
//
// Tenants choose the URLs, so a Sender refuses addresses that only this network can reach, unless Options.Allow names
// them. It judges each address just before dialling it, so a name cannot lead into the private network by changing its
// addresses. A signed post carries these headers:
//
//	Sluice-Delivery: 71
//	Sluice-Signature: t=1795243200,v1=5257a869…
//
// v1 is the HMAC-SHA256, in hexadecimal, of "<t>.<body>" under the webhook's secret, and t is the Unix time of the
// attempt. A delivery can arrive twice, with the same number.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/sluicegate/sluice/internal/violations"
)

// Options of a Sender.
type Options struct {
	Allow   []netip.Prefix // private networks that posts may go to
	Timeout time.Duration  // of an attempt; default 10 s
	// Lookup is for CheckTarget; default net.DefaultResolver.LookupNetIP.
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	UI     func() string // URL of the web UI without a slash at its end; nil for no links
}

const (
	defaultTimeout = 10 * time.Second
	maxAnswer      = 64 << 10
)

// ErrForbidden means that the target's address is not one that posts may go to.
var ErrForbidden = errors.New("the target's address is not public")

// Sender posts notices. Safe for concurrent use.
type Sender struct {
	options Options
	client  *http.Client
	now     func() time.Time
}

var _ violations.Sender = (*Sender)(nil)

// New returns a Sender.
func New(options Options) *Sender {
	timeout := cmp.Or(options.Timeout, defaultTimeout)
	if options.Lookup == nil {
		options.Lookup = net.DefaultResolver.LookupNetIP
	}
	return &Sender{options: options, client: NewClient(options.Allow, timeout), now: time.Now}
}

// NewClient returns the client that a Sender posts with, for other requests to URLs that tenants choose.
func NewClient(allow []netip.Prefix, timeout time.Duration) *http.Client {
	options := &Options{Allow: allow}
	dialer := &net.Dialer{
		Timeout: timeout,
		Control: func(_, address string, _ syscall.RawConn) error { return options.judgeDial(address) },
	}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    timeout,
			ResponseHeaderTimeout:  timeout,
			MaxResponseHeaderBytes: maxAnswer,
			DisableKeepAlives:      true, // so that each request judges its address
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type message struct {
	Type       string       `json:"type"`
	DeliveryID string       `json:"delivery_id"`
	Tenant     string       `json:"tenant"`
	Alert      messageAlert `json:"alert"`
	Kind       string       `json:"kind"`
	RuleID     *int64       `json:"rule_id,string"` // null: all checks
	Meter      *string      `json:"meter"`          // that the rule counts; null: all checks
	Mode       *string      `json:"mode"`           // enforce or shadow, in which nothing is denied; null: all checks
	Subject    *string      `json:"subject"`        // null: all subjects of the rule together
	Count      int64        `json:"count"`          // what the kind counts
	Denied     int64        `json:"denied"`         // the same for denials, 0 for other kinds
	Since      time.Time    `json:"since"`
	RaisedAt   time.Time    `json:"raised_at"`
}

type messageAlert struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Threshold     int64  `json:"threshold"`
	WindowSeconds int64  `json:"window_seconds"`
}

// Send posts a notice, and returns the status of any answer without an error.
func (s *Sender) Send(ctx context.Context, notice *violations.Notice) (status int, err error) {
	body, secret, err := s.bodyOf(notice)
	if err != nil {
		return 0, fmt.Errorf("write the notice: %w", err)
	}
	return s.post(ctx, notice.Of.Target(), secret, strconv.FormatInt(notice.ID, 10), body)
}

// post signs a body unless the secret is "", and returns errors that the tenant may read.
func (s *Sender) post(ctx context.Context, target, secret, delivery string, body []byte) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("prepare the post: %w", tell(err))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Sluice")
	if secret != "" {
		request.Header.Set("Sluice-Delivery", delivery)
		request.Header.Set("Sluice-Signature", Signature(secret, s.now(), body))
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0, tell(err)
	}
	defer func() { _ = response.Body.Close() }()
	// A receiver that is cut off might think that it failed.
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer)
	return response.StatusCode, nil
}

func messageOf(n *violations.Notice) message {
	m := message{
		Type: string(n.Of.Kind) + "_reached_threshold", Kind: string(n.Of.Kind),
		DeliveryID: strconv.FormatInt(n.ID, 10), Tenant: n.TenantSlug,
		Alert: messageAlert{
			ID: strconv.FormatInt(n.Of.ID, 10), Name: n.Of.Name,
			Threshold: n.Of.Threshold, WindowSeconds: int64(n.Of.Window / time.Second),
		},
		Count: n.Denied, Since: n.Since, RaisedAt: n.RaisedAt,
	}
	if n.Of.Kind == violations.AlertDenials {
		m.Denied = n.Denied
	}
	if rule := int64(n.Rule); rule != 0 {
		meter := n.Meter.Word()
		mode := string(n.Mode)
		m.RuleID, m.Meter, m.Mode = &rule, &meter, &mode
	}
	if n.Of.PerSubject {
		m.Subject = &n.Subject
	}
	if n.Test {
		m.Type = "test"
	}
	return m
}

// Signature returns the header that proves who wrote a body and when.
func Signature(secret string, at time.Time, body []byte) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return "t=" + stamp + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
