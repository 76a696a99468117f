package violations

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/rules"
)

// Alert tells people when what it counts of a rule reaches Threshold within Window.
type Alert struct {
	ID     int64
	Tenant rules.TenantID
	Name   string
	Kind   AlertKind
	// Rule is the one that is watched; 0 is each rule by itself and, for AlertDegraded, all checks together.
	Rule rules.RuleID
	// PerSubject applies the threshold to each subject instead of to all of a rule together.
	PerSubject bool
	// Threshold is a number of denials, crossings or checks, and a percentage for AlertNearLimit.
	Threshold int64
	// Window is in whole minutes, the running one included.
	Window time.Duration
	Format Format
	// URL receives the deliveries, and Email does for FormatEmail. See SetURL for FormatSlack.
	URL   string
	Email string
	// Secret signs webhooks; it is the URL for FormatSlack and the routing key for FormatPagerDuty.
	Secret string
	// SecretIsClosed means that the stored secret is sealed under a key that is not configured. Secret is empty then, unless it is
	// to replace the stored one, and nothing can be sent.
	SecretIsClosed bool

	Active  bool
	Version int64 // 1 for a new alert, raised by each change to it
	// RuleRemoved means that the rule is gone. Its removal turned the alert off, and the alert stays off until it names
	// another rule.
	RuleRemoved bool
	// RaisedAt is when it was raised last; zero for never.
	RaisedAt time.Time
	Silence  Silence
}

// AlertKind is what an alert counts.
type AlertKind string

// The kinds of alerts.
const (
	AlertDenials   AlertKind = "denials"    // of the rule; for a shadow rule, what it would have denied
	AlertNearLimit AlertKind = "near_limit" // percent of the rule's checks that it denied, or that left less than a fifth of its limit
	AlertCrossings AlertKind = "crossings"  // of the rule's shares notify_at
	AlertDegraded  AlertKind = "degraded"   // decisions without the shared buckets
)

// Silence keeps an alert from sending anything. What it would have sent is recorded.
type Silence struct {
	Until  time.Time // zero or in the past: it is not silenced
	By     string
	Reason string
}

// Holds reports whether the silence lasts at a time.
func (s *Silence) Holds(now time.Time) bool { return s.Until.After(now) }

// NewWebhookSecret returns a random secret that signs posts.
func NewWebhookSecret() string { return "whs_" + rand.Text() + rand.Text() }

// The bounds of an alert.
const (
	maxAlertName   = 100
	maxAlertWindow = time.Hour // its counts are read every few seconds
	maxSilence     = 30 * 24 * time.Hour
	maxReason      = 500
	// MaxPendingDeliveries caps an alert's deliveries that wait for their receiver. Until one ends, no more are raised.
	MaxPendingDeliveries = 100
)

// Validate returns all that is wrong with an alert. webhook.Sender judges whether its URL may be posted to, and the store
// whether its address is a member's.
func (a *Alert) Validate() (wrong rules.FieldErrors) {
	if n := utf8.RuneCountInString(a.Name); n < 1 || n > maxAlertName {
		wrong.Add("name", fmt.Sprintf("must have from 1 to %d characters", maxAlertName))
	}
	wrong = append(wrong, a.ValidateCondition()...)
	return append(wrong, a.wrongDestination()...)
}

// ValidateCondition returns what is wrong with when an alert is raised.
func (a *Alert) ValidateCondition() (wrong rules.FieldErrors) {
	switch a.Kind {
	case AlertDenials, AlertCrossings:
	case AlertNearLimit, AlertDegraded:
		if a.PerSubject {
			wrong.Add("per", fmt.Sprintf("must be rule, because %s counts no subjects", a.Kind))
		}
	default:
		wrong.Add("kind", fmt.Sprintf("must be %s, %s, %s or %s", AlertDenials, AlertNearLimit, AlertCrossings, AlertDegraded))
	}
	if a.Threshold < 1 {
		wrong.Add("threshold", "must be at least 1")
	}
	if a.Kind == AlertNearLimit && a.Threshold > 100 {
		wrong.Add("threshold", "must be at most 100, because it is a percentage")
	}
	if a.Window < time.Minute || a.Window > maxAlertWindow || a.Window%time.Minute != 0 {
		wrong.Add("window_minutes", fmt.Sprintf("must be in whole minutes, from 1 to %d", int(maxAlertWindow/time.Minute)))
	}
	return wrong
}

// Validate returns what is wrong with a silence that begins now.
func (s *Silence) Validate(now time.Time) (wrong rules.FieldErrors) {
	if !s.Holds(now) || s.Until.After(now.Add(maxSilence)) {
		wrong.Add("until", "must be a time within the next 30 days")
	}
	if utf8.RuneCountInString(s.Reason) > maxReason {
		wrong.Add("reason", fmt.Sprintf("must have at most %d characters", maxReason))
	}
	return wrong
}

// DeliveryState is how far a delivery is.
type DeliveryState string

// A delivery is pending until a 2xx answer makes it delivered or the last attempt makes it failed. One by mail is pending
// until the mail server has accepted it.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed"
)

// Delivery is one message of an alert and the state of sending it.
type Delivery struct {
	ID     int64
	Tenant rules.TenantID
	Alert  int64
	Firing
	RaisedAt time.Time

	State         DeliveryState
	Attempts      int
	NextAttemptAt time.Time // while it is pending
	AttemptedAt   time.Time // zero: not yet
	Status        int       // of the latest answer; 0 for none
	Error         string    // of the latest attempt
	Test          bool      // requested by a person
	UnderWay      bool      // an attempt is in flight
	InMail        bool      // it waits for the mail server, or that refused it
	Silenced      bool      // it was not sent, because its alert was silenced
}

// AlertStore keeps alerts and their deliveries, one tenant at a time. Changes are logged in the actor's name. A method
// that takes an Expected, or an alert with its Version, returns rules.ErrChanged unless that version is stored.
type AlertStore interface {
	Alerts(ctx context.Context, tenant rules.TenantID) ([]Alert, error) // by id
	Alert(ctx context.Context, tenant rules.TenantID, id int64) (Alert, error)
	// CreateAlert and UpdateAlert return a field error for a rule that the tenant never had and, if the alert is
	// active, for one that was removed, and for an address that is not a proven one of a member.
	CreateAlert(ctx context.Context, by rules.Actor, alert Alert) (Alert, error)
	UpdateAlert(ctx context.Context, by rules.Actor, alert Alert) (Alert, error)
	// RotateAlertSecret replaces the secret. Later posts are signed with the new one.
	RotateAlertSecret(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected, secret string) (Alert, error)
	// RemoveAlert removes the alert and its deliveries.
	RemoveAlert(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected) error
	// SilenceAlert begins a silence, or ends it if its time is zero. What waits to be sent is not sent later.
	SilenceAlert(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected, silence Silence) (Alert, error)
	// AlertCounts returns what an alert would have counted since a time, which its Preview judges. It looks at a bounded number of
	// rows: back to lookedBackTo.
	AlertCounts(ctx context.Context, alert *Alert, since, until time.Time) (counts []MinuteCount, lookedBackTo time.Time, err error)
	// CountedSince returns the first minute after a time in which a rule, or any for 0, met a check. It is zero if none did.
	CountedSince(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, since time.Time) (time.Time, error)
	// TestAlert creates a test delivery, which is attempted once. It returns rules.ErrInUse while the previous test is
	// pending.
	TestAlert(ctx context.Context, tenant rules.TenantID, id int64) (Delivery, error)
	// RetryDelivery makes a pending or failed delivery due now. It returns rules.ErrInUse while an attempt is in
	// flight, and rules.ErrFinal if it was delivered.
	RetryDelivery(ctx context.Context, tenant rules.TenantID, alert, id int64) (Delivery, error)
	// AlertDeliveries lists deliveries of one alert, or of all if alert is 0, newest first, with ids below before; 0
	// begins with the newest.
	AlertDeliveries(ctx context.Context, tenant rules.TenantID, alert, before int64, limit int) ([]Delivery, error)
}

// Outbox has the deliveries of all tenants.
type Outbox interface {
	// AlertingTenants returns the tenants that have active alerts.
	AlertingTenants(ctx context.Context) ([]rules.TenantID, error)
	// RaiseAlerts creates a delivery for each alert of a tenant that reached its threshold, unless there is one from
	// within the alert's window. Concurrent calls create one. It takes a few seconds at most.
	RaiseAlerts(ctx context.Context, tenant rules.TenantID, now time.Time) (raised int64, err error)
	// ClaimDeliveries leases up to limit due deliveries; tenants take turns. Nobody else gets them until the lease
	// ends, because the process that holds them may have died. A tenant has at most perTenant leases in all processes,
	// but concurrent claims may exceed that once.
	ClaimDeliveries(ctx context.Context, now, leaseEnds time.Time, perTenant, limit int) ([]Notice, error)
	// MailDelivery hands a delivery over to the mail, which has retries of its own, and returns "" or why it cannot. It
	// changes nothing if the lease ended and another attempt began.
	MailDelivery(ctx context.Context, notice *Notice, now time.Time) (refused string, err error)
	// FinishDelivery stores the result of an attempt. It does nothing if the lease ended and another attempt began.
	FinishDelivery(ctx context.Context, delivery Delivery) error
}
