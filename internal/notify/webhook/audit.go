package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
)

var _ auth.AuditSender = (*Sender)(nil)

type auditMessage struct {
	Type   string       `json:"type"`
	Tenant string       `json:"tenant"`
	Events []auditEvent `json:"events"`
}

type auditEvent struct {
	AuditID  string          `json:"audit_id"`
	ChangeID string          `json:"change_id"`
	At       time.Time       `json:"at"`
	Actor    auditActor      `json:"actor"`
	Action   string          `json:"action"`
	Object   auditObject     `json:"object"`
	Before   json.RawMessage `json:"before"` // null: there was none
	After    json.RawMessage `json:"after"`
	RowCount int             `json:"row_count,omitempty"`
	Rows     []auth.AuditRow `json:"rows,omitempty"`
}

type auditActor struct {
	Kind      string `json:"kind"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Act       string `json:"act"`
	RequestID string `json:"request_id"`
}

type auditObject struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// SendAudit posts a batch of an audit log, and returns the status of any answer without an error.
func (s *Sender) SendAudit(ctx context.Context, batch *auth.AuditBatch) (status int, err error) {
	message := auditMessage{Type: "audit_events", Tenant: batch.Errand.TenantSlug, Events: []auditEvent{}}
	delivery := "test"
	if batch.Errand.IsTest {
		message.Type = "test"
	}
	for i := range batch.Entries {
		message.Events = append(message.Events, auditEventOf(&batch.Entries[i]))
	}
	if n := len(message.Events); n > 0 {
		delivery = message.Events[0].AuditID + "-" + message.Events[n-1].AuditID
	}
	body, err := json.Marshal(message)
	if err != nil {
		return 0, fmt.Errorf("write the audit entries: %w", err)
	}
	return s.post(ctx, batch.Errand.URL, batch.Errand.Secret, delivery, body)
}

func auditEventOf(e *auth.AuditEntry) auditEvent {
	return auditEvent{
		AuditID: strconv.FormatInt(int64(e.ID), 10), ChangeID: strconv.FormatInt(e.Change, 10), At: e.At,
		Actor:  auditActor{string(e.Actor.Kind), e.Actor.ID, e.Actor.Name, e.Actor.Act, e.Actor.RequestID},
		Action: string(e.Action), Object: auditObject{e.Object.Kind, e.Object.ID}, Before: e.Before, After: e.After,
		RowCount: len(e.Rows), Rows: e.Rows,
	}
}
