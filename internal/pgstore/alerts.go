package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

var (
	_ violations.AlertStore = (*Store)(nil)
	_ violations.Outbox     = (*Store)(nil)
)

// Alerts returns a tenant's alerts by id.
func (s *Store) Alerts(ctx context.Context, tenant rules.TenantID) ([]violations.Alert, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).Alerts(ctx, tenant)
	return each(rows, func(row dbsqlc.AlertsRow) violations.Alert {
		return s.alertFromRow(row.Alert, row.RuleRemoved, row.RaisedAt)
	}), wrap(err, "read alerts")
}

// Alert returns one alert.
func (s *Store) Alert(ctx context.Context, tenant rules.TenantID, id int64) (violations.Alert, error) {
	row, err := s.queriesFor(classRead, only(tenant)).Alert(ctx, tenant, id)
	return s.alertFromRow(row.Alert, row.RuleRemoved, row.RaisedAt), wrap(err, "read alert %d", id)
}

// CreateAlert creates an alert.
func (s *Store) CreateAlert(ctx context.Context, by rules.Actor, alert violations.Alert) (violations.Alert, error) {
	created, err := s.changeAlert(ctx, by, alert.Tenant, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
		secret, err := s.vault.SealText(alertUse, int64(alert.Tenant), alert.Secret)
		if err != nil {
			return 0, err
		}
		return q.CreateAlert(ctx, dbsqlc.CreateAlertParams{
			TenantID: alert.Tenant, Name: alert.Name, Kind: string(alert.Kind), RuleID: unlessZero(alert.Rule),
			PerSubject: alert.PerSubject,
			Threshold:  alert.Threshold, WindowMinutes: int32(alert.Window / time.Minute),
			Format: string(alert.Format), Url: alert.URL, Email: alert.Email, Secret: secret, IsActive: alert.Active,
		})
	})
	return created, wrap(err, "create alert %q", alert.Name)
}

// UpdateAlert changes an alert.
func (s *Store) UpdateAlert(ctx context.Context, by rules.Actor, alert violations.Alert) (violations.Alert, error) {
	updated, err := s.changeAlert(ctx, by, alert.Tenant, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
		stored, err := storedAlert(ctx, q, alert.Tenant, alert.ID, rules.Expected(alert.Version))
		if err != nil {
			return 0, err
		}
		secret, err := s.sealedAgain(&alert, stored.Secret)
		if err != nil {
			return 0, err
		}
		if !alert.Active {
			if err := q.SilenceDeliveries(ctx, alert.Tenant, []int64{alert.ID}); err != nil {
				return 0, err
			}
		}
		return alert.ID, foundOne(q.UpdateAlert(ctx, dbsqlc.UpdateAlertParams{
			TenantID: alert.Tenant, AlertID: alert.ID, Name: alert.Name, Kind: string(alert.Kind),
			RuleID:     unlessZero(alert.Rule),
			PerSubject: alert.PerSubject, Threshold: alert.Threshold, WindowMinutes: int32(alert.Window / time.Minute),
			Format: string(alert.Format), Url: alert.URL, Email: alert.Email, Secret: secret, IsActive: alert.Active,
		}))
	})
	return updated, wrap(err, "update alert %d", alert.ID)
}

// RotateAlertSecret replaces the secret.
func (s *Store) RotateAlertSecret(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected, secret string,
) (violations.Alert, error) {
	by.Act = cmp.Or(by.Act, "rotate secret") // the log leaves out secrets
	rotated, err := s.changeAlert(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
		if err := expectAlert(ctx, q, tenant, id, expected); err != nil {
			return 0, err
		}
		sealed, err := s.vault.SealText(alertUse, int64(tenant), secret)
		if err != nil {
			return 0, err
		}
		return id, foundOne(q.RotateAlertSecret(ctx, sealed, tenant, id))
	})
	return rotated, wrap(err, "rotate the secret of alert %d", id)
}

// SilenceAlert begins or ends a silence.
func (s *Store) SilenceAlert(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64, expected rules.Expected,
	silence violations.Silence,
) (violations.Alert, error) {
	act, until := "silence", &silence.Until
	if silence.Until.IsZero() {
		act, until = "end the silence", nil
	}
	by.Act = cmp.Or(by.Act, act)
	silenced, err := s.changeAlert(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) (int64, error) {
		if err := expectAlert(ctx, q, tenant, id, expected); err != nil {
			return 0, err
		}
		err := foundOne(q.SilenceAlert(ctx, dbsqlc.SilenceAlertParams{
			Until: until, SilencedBy: silence.By, Reason: silence.Reason, TenantID: tenant, AlertID: id,
		}))
		if err == nil && until != nil {
			err = q.SilenceDeliveries(ctx, tenant, []int64{id})
		}
		return id, err
	})
	return silenced, wrap(err, "silence alert %d", id)
}

// RemoveAlert removes an alert and its deliveries.
func (s *Store) RemoveAlert(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64,
	expected rules.Expected,
) error {
	err := s.inTenantAs(ctx, by, tenant, func(ctx context.Context, queries *dbsqlc.Queries) error {
		if err := expectAlert(ctx, queries, tenant, id, expected); err != nil {
			return err
		}
		return foundOne(queries.RemoveAlert(ctx, tenant, id))
	})
	return wrap(err, "remove alert %d", id)
}

// changeAlert refuses an active alert without a rule or a recipient, which would never fire or reach nobody.
func (s *Store) changeAlert(
	ctx context.Context, by rules.Actor, tenant rules.TenantID,
	change func(context.Context, *dbsqlc.Queries) (id int64, err error),
) (changed violations.Alert, err error) {
	err = s.inTenantAs(ctx, by, tenant, func(ctx context.Context, queries *dbsqlc.Queries) error {
		id, err := change(ctx, queries)
		if err != nil {
			return alertError(err)
		}
		row, err := queries.Alert(ctx, tenant, id)
		if err != nil {
			return err
		}
		if row.Alert.IsActive && row.RuleRemoved {
			return rules.FieldErrors{{
				Field:   "rule_id",
				Message: "was removed; choose another rule, or leave the alert off",
			}}
		}
		if row.Alert.IsActive && row.Alert.Format == string(violations.FormatEmail) {
			_, err := queries.ProvenMember(ctx, tenant, row.Alert.Email)
			if errors.Is(err, pgx.ErrNoRows) {
				return rules.FieldErrors{{
					Field:   "email",
					Message: "must be the verified address of a member of the tenant who can sign in",
				}}
			}
			if err != nil {
				return err
			}
		}
		changed = s.alertFromRow(row.Alert, row.RuleRemoved, row.RaisedAt)
		return nil
	})
	return changed, err
}

func expectAlert(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, id int64,
	expected rules.Expected,
) error {
	_, err := storedAlert(ctx, q, tenant, id, expected)
	return err
}

func storedAlert(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, id int64,
	expected rules.Expected,
) (dbsqlc.Alert, error) {
	row, err := q.Alert(ctx, tenant, id)
	if err != nil {
		return row.Alert, err
	}
	return row.Alert, expect(expected, row.Alert.Version)
}

// TestAlert creates a test delivery that is due at once.
func (s *Store) TestAlert(ctx context.Context, tenant rules.TenantID, id int64) (violations.Delivery, error) {
	var row dbsqlc.Delivery
	err := s.transaction(ctx, classWrite, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.Alert(ctx, tenant, id)
		if err != nil {
			return err
		}
		if row, err = q.TestAlert(ctx, tenant, id); errors.Is(err, pgx.ErrNoRows) {
			return rules.ErrInUse
		}
		if err != nil {
			return err
		}
		return enqueue(ctx, q, tenant, violations.TestKind, row.DeliveryID, time.Time{})
	})
	return pendingFromRow(row), wrap(err, "test alert %d", id)
}

// RetryDelivery makes a delivery due at once.
func (s *Store) RetryDelivery(ctx context.Context, tenant rules.TenantID, alert, id int64) (violations.Delivery,
	error,
) {
	var row dbsqlc.Delivery
	err := s.transaction(ctx, classWrite, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		if row, err = q.RetryAlertDelivery(ctx, tenant, alert, id); errors.Is(err, pgx.ErrNoRows) {
			if _, err = q.AlertDelivery(ctx, tenant, alert, id); err == nil {
				err = rules.ErrFinal
			}
		}
		if err != nil {
			return err
		}
		kind := violations.DeliveryKind
		if row.IsTest {
			kind = violations.TestKind
		}
		due, err := q.EnqueueJob(ctx, dbsqlc.EnqueueJobParams{
			TenantID: tenant, Kind: kind, About: strconv.FormatInt(id, 10), IsRetry: true,
		})
		if err == nil && due == 0 {
			err = rules.ErrInUse
		}
		return err
	})
	return pendingFromRow(row), wrap(err, "retry delivery %d", id)
}

func pendingFromRow(row dbsqlc.Delivery) violations.Delivery {
	d := deliveryFromRow(row)
	d.NextAttemptAt = time.Now().UTC()
	return d
}

// AlertDeliveries returns deliveries, newest first.
func (s *Store) AlertDeliveries(ctx context.Context, tenant rules.TenantID, alert, before int64,
	limit int,
) ([]violations.Delivery, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).AlertDeliveriesBefore(ctx, dbsqlc.AlertDeliveriesBeforeParams{
		TenantID: tenant, AlertID: alert, Before: cmp.Or(before, math.MaxInt64), PageSize: rowLimit(limit),
	})
	return each(rows, func(row dbsqlc.AlertDeliveriesBeforeRow) violations.Delivery {
		delivery := deliveryFromRow(row.Delivery)
		delivery.NextAttemptAt, delivery.UnderWay = sinceEpoch(row.NextRunAt), row.UnderWay
		switch auth.MailState(row.MailState) {
		case auth.MailQueued:
			delivery.State, delivery.Error, delivery.InMail = violations.DeliveryPending, row.MailError, true
		case auth.MailFailed:
			delivery.State, delivery.Error, delivery.InMail = violations.DeliveryFailed, row.MailError, true
		case auth.MailSent:
		}
		return delivery
	}), wrap(err, "read deliveries")
}

// Notice returns a delivery to be attempted.
func (s *Store) Notice(ctx context.Context, tenant rules.TenantID, id int64) (violations.Notice, error) {
	row, err := s.queriesFor(classRead, only(tenant)).DeliveryToSend(ctx, tenant, id)
	if err != nil {
		return violations.Notice{}, wrap(err, "read delivery %d", id)
	}
	raisedWith := row.Alert
	raisedWith.Kind, raisedWith.PerSubject = row.Delivery.Kind, row.Delivery.PerSubject
	raisedWith.Threshold, raisedWith.WindowMinutes = row.Delivery.Threshold, row.Delivery.WindowMinutes
	return violations.Notice{
		Delivery: deliveryFromRow(row.Delivery), Of: s.alertFromRow(raisedWith, false, time.Time{}),
		TenantSlug: row.Slug, Pattern: row.RulePattern, Meter: rules.Meter(row.RuleMeter), Detail: row.RuleDetail,
		Mode: rules.Mode(row.Delivery.Mode),
	}, nil
}

const alertMailLife = 4 * time.Hour

var errOvertaken = errors.New("the delivery was delivered meanwhile")

// MailDelivery queues the message of a delivery, if its recipient still is a member.
func (s *Store) MailDelivery(ctx context.Context, n *violations.Notice) (refused string, err error) {
	err = s.transaction(ctx, classBackground, only(n.Tenant), func(ctx context.Context, queries *dbsqlc.Queries) error {
		to, err := queries.ProvenMember(ctx, n.Tenant, n.Of.Email)
		if errors.Is(err, pgx.ErrNoRows) {
			refused = "the address is not the verified one of a member who can sign in"
			return nil
		}
		if err != nil {
			return err
		}
		mail, err := queueMail(ctx, queries, auth.Mail{
			Tenant: n.Tenant, Kind: auth.MailAlert, To: to.Email, Account: to.AccountID,
			GiveUpAt: time.Now().Add(alertMailLife),
			Facts: map[string]string{
				auth.FactTenant: n.TenantSlug, auth.FactSlug: n.TenantSlug, auth.FactAlert: n.Of.Name,
				auth.FactAlertID: strconv.FormatInt(n.Of.ID, 10), auth.FactText: n.Summary(),
				auth.FactRaisedAt: n.RaisedAt.UTC().Format(time.RFC3339),
			},
		}, auth.TenantMail)
		if errors.Is(err, auth.ErrTooMuchMail) {
			refused = fmt.Sprintf("alerts sent more than %d messages in a day, or %d wait for the mail server",
				auth.TenantMail.Day, auth.TenantMail.Queued)
			return nil
		}
		if err != nil {
			return err
		}
		mailed, err := queries.DeliveryMailed(ctx, mail.ID, n.Tenant, n.ID)
		if err == nil && mailed == 0 {
			err = errOvertaken
		}
		return err
	})
	if errors.Is(err, errOvertaken) {
		return "", nil
	}
	return refused, wrap(err, "mail delivery %d", n.ID)
}

// FinishDelivery stores the result of an attempt.
func (s *Store) FinishDelivery(ctx context.Context, job *jobs.Job, id int64, status int, failure string,
	delivered bool,
) error {
	tenant := rules.TenantID(job.Tenant)
	err := s.queriesFor(classWrite, only(tenant)).FinishAlertDelivery(ctx, dbsqlc.FinishAlertDeliveryParams{
		TenantID: tenant, DeliveryID: id, Delivered: delivered, HttpStatus: int32(status), Error: failure,
		JobID: job.ID, Claim: job.Claim,
	})
	return wrap(err, "finish delivery %d", id)
}

// GiveUpDelivery ends a delivery without success.
func (s *Store) GiveUpDelivery(ctx context.Context, job *jobs.Job, id int64, failure string) error {
	tenant := rules.TenantID(job.Tenant)
	err := s.queriesFor(classWrite, only(tenant)).GiveUpDelivery(ctx, dbsqlc.GiveUpDeliveryParams{
		Error: failure, TenantID: tenant, DeliveryID: id, JobID: job.ID, Claim: job.Claim,
	})
	return wrap(err, "give delivery %d up", id)
}

func alertError(err error) error {
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.ConstraintName == "alert_rule_fkey" {
		return rules.FieldErrors{{Field: "rule_id", Message: "must be a rule of the tenant"}}
	}
	return writeError(err)
}

func (s *Store) alertFromRow(row dbsqlc.Alert, ruleRemoved bool, raisedAt time.Time) violations.Alert {
	alert := violations.Alert{
		ID: row.AlertID, Tenant: row.TenantID, Name: row.Name, Kind: violations.AlertKind(row.Kind),
		Rule: orZeroValue(row.RuleID), RuleRemoved: ruleRemoved, PerSubject: row.PerSubject,
		Threshold: row.Threshold, Window: time.Duration(row.WindowMinutes) * time.Minute,
		Format: violations.Format(row.Format), URL: row.Url, Email: row.Email, Active: row.IsActive,
		Version: row.Version, RaisedAt: sinceEpoch(raisedAt),
		Silence: violations.Silence{
			Until: orZero(row.SilencedUntil), By: row.SilencedBy, Reason: row.SilenceReason,
		},
	}
	alert.Secret, alert.SecretIsClosed = s.opened(alertUse, row.TenantID, row.Secret)
	return alert
}

func deliveryFromRow(row dbsqlc.Delivery) violations.Delivery {
	return violations.Delivery{
		ID: row.DeliveryID, Tenant: row.TenantID, Alert: row.AlertID, Kind: violations.AlertKind(row.Kind),
		Firing: violations.Firing{
			Rule: orZeroValue(row.RuleID), Subject: row.Subject, Denied: row.Denied, Since: row.Since.UTC(),
		},
		RaisedAt: row.RaisedAt.UTC(), State: violations.DeliveryState(row.State),
		Attempts: int(row.Attempts), AttemptedAt: orZero(row.AttemptedAt), Error: row.Error, Test: row.IsTest,
		Silenced: row.Silenced, Status: int(orZeroValue(row.HttpStatus)),
	}
}
