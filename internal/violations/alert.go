package violations

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

// Alert notifies people when its count for a rule reaches Threshold within Window.
type Alert struct {
	ID         int64
	Tenant     rules.TenantID
	Name       string
	Kind       AlertKind
	Rule       rules.RuleID  // 0: each rule separately or, for AlertDegraded, all checks
	PerSubject bool          // the threshold is of each subject, not of the whole rule
	Threshold  int64         // denials, crossings or checks; for AlertNearLimit a percentage
	Window     time.Duration // whole minutes, including the running one
	Format     Format
	// URL receives the deliveries, except for FormatEmail. People only see ShownURL, because the URL may contain a
	// token. For FormatSlack it is already the ShownURL.
	URL   string
	Email string
	// Secret signs webhooks; for FormatSlack it is the URL, for FormatPagerDuty the routing key.
	Secret string
	// SecretIsClosed means that no configured key opens the stored secret, so nothing can be sent. Secret is empty
	// then, unless it replaces the stored one.
	SecretIsClosed bool

	Active      bool
	Version     int64     // 1 for a new one, raised by each change
	RuleRemoved bool      // which turned the alert off until it names another rule
	RaisedAt    time.Time // zero: never
	Silence     Silence
}

// AlertKind is the quantity that an alert counts.
type AlertKind string

// The kinds of alerts.
const (
	AlertDenials AlertKind = "denials" // of the rule; for a shadow rule, those that it would have made
	// percent of the rule's checks that were denied, or that left less than a fifth of the limit
	AlertNearLimit AlertKind = "near_limit"
	AlertCrossings AlertKind = "crossings" // of the rule's shares notify_at
	AlertDegraded  AlertKind = "degraded"  // decisions without the shared buckets
)

// Silence keeps an alert from sending; its deliveries are still recorded.
type Silence struct {
	Until  time.Time // zero or in the past: not silenced
	By     string
	Reason string
}

// Holds reports whether the silence is in force at a time.
func (s *Silence) Holds(now time.Time) bool { return s.Until.After(now) }

// NewWebhookSecret returns a random secret that signs posts.
func NewWebhookSecret() string { return "whs_" + rand.Text() + rand.Text() }

// The bounds of an alert.
const (
	maxAlertName   = 100
	maxAlertWindow = time.Hour // the counts are read every few seconds
	maxSilence     = 30 * 24 * time.Hour
	maxReason      = 500
	// MaxPendingDeliveries bounds an alert's pending deliveries, MaxPendingOfTenant those of all alerts of a tenant. At
	// a bound, no more are created.
	MaxPendingDeliveries = 100
	MaxPendingOfTenant   = 1000
)

// Validate returns all mistakes in an alert. webhook.Sender checks the URL's host, the store the membership.
func (a *Alert) Validate() (wrong rules.FieldErrors) {
	if n := utf8.RuneCountInString(a.Name); n < 1 || n > maxAlertName {
		wrong.Add("name", fmt.Sprintf("must have from 1 to %d characters", maxAlertName))
	}
	wrong = append(wrong, a.ValidateCondition()...)
	return append(wrong, a.wrongDestination()...)
}

// ValidateCondition returns the mistakes in an alert's condition alone.
func (a *Alert) ValidateCondition() (wrong rules.FieldErrors) {
	switch a.Kind {
	case AlertDenials, AlertCrossings:
	case AlertNearLimit, AlertDegraded:
		if a.PerSubject {
			wrong.Add("per", fmt.Sprintf("must be rule, because %s counts no subjects", a.Kind))
		}
	default:
		wrong.Add("kind", fmt.Sprintf("must be %s, %s, %s or %s", AlertDenials, AlertNearLimit, AlertCrossings,
			AlertDegraded))
	}
	if a.Threshold < 1 {
		wrong.Add("threshold", "must be at least 1")
	}
	if a.Kind == AlertNearLimit && a.Threshold > 100 {
		wrong.Add("threshold", "must be at most 100, because it is a percentage")
	}
	if a.Window < time.Minute || a.Window > maxAlertWindow || a.Window%time.Minute != 0 {
		wrong.Add("window_minutes", fmt.Sprintf("must be in whole minutes, from 1 to %d",
			int(maxAlertWindow/time.Minute)))
	}
	return wrong
}

// Validate returns the mistakes in a silence that begins now.
func (s *Silence) Validate(now time.Time) (wrong rules.FieldErrors) {
	if !s.Holds(now) || s.Until.After(now.Add(maxSilence)) {
		wrong.Add("until", "must be a time within the next 30 days")
	}
	if utf8.RuneCountInString(s.Reason) > maxReason {
		wrong.Add("reason", fmt.Sprintf("must have at most %d characters", maxReason))
	}
	return wrong
}

// DeliveryState is the state of a delivery.
type DeliveryState string

// A delivery is pending until a 2xx answer or, for mail, until the mail server has accepted it, or the last attempt
// fails.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed"
)

// Delivery is a message of an alert and its state.
type Delivery struct {
	ID     int64
	Tenant rules.TenantID
	Alert  int64
	Kind   AlertKind // of the alert when it was raised
	Firing
	RaisedAt time.Time

	State         DeliveryState
	Attempts      int
	NextAttemptAt time.Time // while pending
	AttemptedAt   time.Time // zero: not yet
	Status        int       // of the latest answer; 0 for none
	Error         string    // of the latest attempt
	Test          bool      // requested by a person
	UnderWay      bool      // an attempt is in flight
	InMail        bool      // it waits for the mail server, or was refused by it
	Silenced      bool      // not sent, because the alert was silenced
}

// AlertStore stores alerts and their deliveries. A method with an Expected, or with an alert, returns rules.ErrChanged
// unless the version matches.
type AlertStore interface {
	Alerts(ctx context.Context, tenant rules.TenantID) ([]Alert, error) // by id
	Alert(ctx context.Context, tenant rules.TenantID, id int64) (Alert, error)
	// CreateAlert and UpdateAlert return a field error for an unknown rule, for a removed one if the alert is active,
	// and for an address that is not a member's proven one.
	CreateAlert(ctx context.Context, by rules.Actor, alert Alert) (Alert, error)
	UpdateAlert(ctx context.Context, by rules.Actor, alert Alert) (Alert, error)
	RotateAlertSecret(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected,
		secret string) (Alert, error)
	RemoveAlert(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected) error
	// SilenceAlert begins a silence, or ends it if its time is zero. Waiting deliveries are not sent later.
	SilenceAlert(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected,
		silence Silence) (Alert, error)
	// AlertCounts returns an alert's counts for Preview. The store reads a bounded number of rows, back to
	// lookedBackTo.
	AlertCounts(ctx context.Context, alert *Alert, since, until time.Time) (counts []MinuteCount,
		lookedBackTo time.Time, err error)
	// CountedSince returns the first minute after since with a check that a rule (0: any) matched, or zero.
	CountedSince(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, since time.Time) (time.Time, error)
	// TestAlert creates a delivery with one attempt. Returns rules.ErrInUse while the previous test is pending.
	TestAlert(ctx context.Context, tenant rules.TenantID, id int64) (Delivery, error)
	// RetryDelivery makes a pending or failed delivery due now. Returns rules.ErrInUse while an attempt is in flight,
	// and rules.ErrFinal if it was delivered.
	RetryDelivery(ctx context.Context, tenant rules.TenantID, alert, id int64) (Delivery, error)
	// AlertDeliveries lists deliveries of an alert (0: of all), newest first, with ids below before (0: any).
	AlertDeliveries(ctx context.Context, tenant rules.TenantID, alert, before int64, limit int) ([]Delivery, error)
}

// ActiveAlert is an alert that may be raised, without its texts and destination.
type ActiveAlert struct {
	Alert
	OfTenant int // how many active alerts its tenant has
}

// Outbox stores all tenants' deliveries.
type Outbox interface {
	// ActiveAlerts returns all active alerts, by tenant.
	ActiveAlerts(ctx context.Context) ([]ActiveAlert, error)
	// RaiseAlerts creates a delivery for each alert that has reached its threshold, unless one exists from within its
	// window. An alert that was changed since it was read, or is being changed, is skipped. After an error none was
	// raised.
	RaiseAlerts(ctx context.Context, alerts []ActiveAlert, now time.Time) (raised int64, err error)
	// Notice returns a delivery to be attempted, or rules.ErrNotFound if it was delivered or is gone.
	Notice(ctx context.Context, tenant rules.TenantID, id int64) (Notice, error)
	// MailDelivery queues a delivery as mail, which has its own retries, and returns "" or the reason why not. A
	// delivered one is skipped.
	MailDelivery(ctx context.Context, notice *Notice) (refused string, err error)
	// FinishDelivery stores the result of an attempt: the status of the answer (0: none), an error, and whether it
	// succeeded. Nothing changes if the delivery was delivered meanwhile. A failure is dropped if another claim was
	// made since, or if the job is gone.
	FinishDelivery(ctx context.Context, job *jobs.Job, id int64, status int, failure string,
		delivered bool) error
	// GiveUpDelivery ends a delivery without success. An empty failure keeps the error of the last attempt.
	GiveUpDelivery(ctx context.Context, job *jobs.Job, id int64, failure string) error
}
