package violations

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/rules"
)

// Alert says whom to tell when a rule denies so often within a window. A shadow rule's would-be denials
// count like any.
type Alert struct {
	ID     int64
	Tenant rules.TenantID
	Name   string
	Rule   rules.RuleID
	// PerSubject makes the threshold that of any one subject; else it is that of all together.
	PerSubject bool
	Threshold  int64
	// Window is in whole minutes. The one that runs counts as the last.
	Window time.Duration
	// URL is where deliveries are posted, signed with Secret.
	URL     string
	Secret  string
	Active  bool
	Version int64 // 1 for a new alert, raised by each change to it
	// RuleRemoved says that the rule is gone. The alert was turned off with it, and stays off until it is about
	// another rule.
	RuleRemoved bool
}

// NewAlertSecret returns a secret that nobody can guess.
func NewAlertSecret() string { return "whs_" + rand.Text() + rand.Text() }

// The bounds of an alert.
const (
	MaxAlertName   = 100
	MaxAlertURL    = 2048
	MaxAlertWindow = time.Hour // all of its counts are read every few seconds
	MaxAlerts      = 100       // of a tenant
	// MaxPendingDeliveries is how many of an alert wait for their receiver. While there are as many, what else
	// is reached is raised later, if it still is.
	MaxPendingDeliveries = 100
)

// Validate returns all that is wrong with an alert as people describe it, but for where its URL leads: see
// webhook.Sender.
func (a *Alert) Validate() (wrong rules.FieldErrors) {
	add := func(field, format string, args ...any) {
		wrong = append(wrong, rules.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if n := utf8.RuneCountInString(a.Name); n < 1 || n > MaxAlertName {
		add("name", "must have from 1 to %d characters", MaxAlertName)
	}
	if a.Threshold < 1 {
		add("threshold", "must be at least 1")
	}
	if a.Window < time.Minute || a.Window > MaxAlertWindow || a.Window%time.Minute != 0 {
		add("window_minutes", "must be in whole minutes, from 1 to %d", int(MaxAlertWindow/time.Minute))
	}
	target, err := url.Parse(a.URL)
	switch {
	case err != nil || len(a.URL) > MaxAlertURL || target.Scheme != "https" && target.Scheme != "http" || target.Hostname() == "":
		add("url", "must be a URL such as https://example.com/hooks, of at most %d bytes", MaxAlertURL)
	case target.User != nil:
		add("url", "must not hold a password, which everybody could read who may read alerts")
	}
	return wrong
}

// DeliveryState is how far a delivery is.
type DeliveryState string

// A delivery is pending until an answer of 2xx makes it delivered, or too many tries make it failed.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed"
)

// Delivery is what an alert had to say once, and how telling it went.
type Delivery struct {
	ID     int64
	Tenant rules.TenantID
	Alert  int64
	// Subject is who was denied; "" for all of the rule's together.
	Subject  string
	Denied   int64     // when it was raised
	Since    time.Time // the minute of the first of these denials
	RaisedAt time.Time

	State         DeliveryState
	Attempts      int
	NextAttemptAt time.Time // while it is pending
	AttemptedAt   time.Time // zero: not yet
	Status        int       // of the latest answer; 0 for none
	Error         string    // what went wrong the last time
	Test          bool      // somebody asked for it
	UnderWay      bool      // it is attempted at the moment
}

// AlertStore is where alerts are written down and read, one tenant at a time. Changes are made in the
// name of an actor and written to the audit log. Where a method takes an Expected, or an alert with its Version,
// it is rules.ErrChanged unless that is what is stored.
type AlertStore interface {
	Alerts(ctx context.Context, tenant rules.TenantID) ([]Alert, error) // by id
	Alert(ctx context.Context, tenant rules.TenantID, id int64) (Alert, error)
	// CreateAlert is a field error for a rule that the tenant never had, and, if the alert is active, for one
	// that was removed. UpdateAlert, too; it keeps the secret.
	CreateAlert(ctx context.Context, by rules.Actor, alert Alert) (Alert, error)
	UpdateAlert(ctx context.Context, by rules.Actor, alert Alert) (Alert, error)
	// RotateAlertSecret replaces the secret. What is sent from then on is signed with the new one.
	RotateAlertSecret(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected, secret string) (Alert, error)
	// RemoveAlert removes the alert's deliveries as well.
	RemoveAlert(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected) error
	// TestAlert makes a delivery that says it is a test, and that is tried once. It is rules.ErrInUse while the
	// test before is pending.
	TestAlert(ctx context.Context, tenant rules.TenantID, id int64) (Delivery, error)
	// RetryDelivery makes a delivery due at once that waits for its next attempt or was given up. It is
	// rules.ErrInUse for one that is being attempted, and rules.ErrFinal for one that was delivered.
	RetryDelivery(ctx context.Context, tenant rules.TenantID, alert, id int64) (Delivery, error)
	// AlertDeliveries lists those of one alert, or of all if it is 0, newest first, before an id; 0 begins
	// with the newest.
	AlertDeliveries(ctx context.Context, tenant rules.TenantID, alert, before int64, limit int) ([]Delivery, error)
}

// Outbox is where deliveries wait, those of all tenants.
type Outbox interface {
	// AlertingTenants returns the tenants that have active alerts.
	AlertingTenants(ctx context.Context) ([]rules.TenantID, error)
	// RaiseAlerts makes a delivery for each alert of a tenant whose threshold was reached, unless it made one
	// within the alert's window. Processes that do so at once make one. It takes a few seconds at most.
	RaiseAlerts(ctx context.Context, tenant rules.TenantID, now time.Time) (raised int64, err error)
	// ClaimDeliveries takes up to limit deliveries that are due, tenants taking turns. Nobody else gets them
	// until the lease ends, after which the process that holds them may have died. A tenant has perTenant
	// of them at once, in all processes; those that claim in the same moment may exceed that for once.
	ClaimDeliveries(ctx context.Context, now, leaseEnds time.Time, perTenant, limit int) ([]Notice, error)
	// FinishDelivery writes down how an attempt went. It does nothing if the lease had ended and somebody
	// else began another.
	FinishDelivery(ctx context.Context, delivery Delivery) error
}

// Notice is a delivery with everything that its receiver is told.
type Notice struct {
	Delivery
	Of         Alert
	TenantSlug string
}
