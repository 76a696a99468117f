package pgstore_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

// userData says of each column that could hold an end user's id or address how erasing handles it and ExportUserData
// shows it, or why not. A new column must be added here.
var userData = map[string]string{
	"access_event": "about people who sign in and their keys: tenant kind who typed ip user_agent detail request_id " +
		"key_id",
	"alert": "configuration: name kind format url secret silence_reason\nabout people who sign in: email " +
		"silenced_by",
	"api_key": "configuration: key_id name digest permissions networks created_by_kind created_by_id " +
		"created_by_name",
	"api_key_use": "configuration: key_id",
	"audit_event": "handled, by erase_user_from_audit: object_id before after rows\n" +
		"about people who sign in: actor_kind actor_id actor_name act request_id action object_kind",
	"audit_webhook":          "configuration: url secret",
	"audit_webhook_progress": "about sending: error test_error",
	"backend_report":         "about backends: backend latency",
	"bucket":                 "filled by EraseUser and removed once full: subject state",
	"bucket_credit": "forgotten after a day; ids and answers of credits, without users: credit_id " +
		"fingerprint answer",
	"bucket_checkpoint": "handled, but for a long subject's digest; a digest of an erased user stays for an hour: " +
		"subject state owner",
	"bucket_record":      "forgotten after minutes; a digest: record_id",
	"bucket_reservation": "deleted after a day at most: reservation_id record",
	"delivery":           "handled: subject\nabout its alert: kind mode\nabout sending: state error",
	"denial_count":       "handled: value\nabout the denial: dimension mode",
	"export": "handled, all of the tenant are deleted: request place\n" +
		"about people who sign in: requested_by_kind requested_by_id\nabout exporting: error",
	"export_chunk": "handled, with its export: data",
	"gateway":      "configuration: kind document",
	"idempotency": "deleted after a day; the answer is encrypted by a key that is not stored, so that nobody can " +
		"look for a user in it: " +
		"key_digest caller fingerprint answer",
	"invitation":          "about people who sign in: email role token_digest invited_by",
	"job":                 "about background work, by ids that are no users': kind about state error",
	"key_notice":          "configuration: key_id notice",
	"mail":                "about people who sign in: kind recipient facts state error",
	"member":              "about people who sign in: role granted_by",
	"plan":                "configuration: name description",
	"plan_assignment":     "handled: user_id\nconfiguration: plan",
	"plan_use":            "configuration: plan",
	"quota_crossing":      "handled: user_id subject\nconfiguration: mode rule_name key_pattern meter",
	"rate_limit_override": "handled: user_id reason\nconfiguration: rate_unit",
	"rate_limit_rule": "configuration, and named by the receipt if it names the user: name key_pattern scope plan " +
		"rate_unit algorithm mode " +
		"action failure_mode description parameters",
	"rate_limit_step": "about rules: cause memory",
	"rate_limit_violation": "handled: bucket_key user_id ip_address\n" +
		"about the request, without its user: scope mode reason key_pattern endpoint method plan algorithm " +
		"limit_text meter",
	"recent_check":  "handled: value\nabout the check: dimension",
	"tenant":        "configuration: slug name default_plan enforcement failure_mode",
	"tenant_use":    "configuration: thing",
	"traffic_block": "handled: users payload\nabout recording: writer",
	"replay": "handled: request result\n" +
		"about people who sign in: requested_by_kind requested_by_id requested_by_name state failure",
	"scheduled_change": "configuration: title patch failure state\n" +
		"about people who sign in: requested_by_kind requested_by_id requested_by_name",
	"scheduled_change_rule": "configuration: patch fields before failure",
	"user_erasure": "handled, removed at the end: user_id\nabout people who sign in: actor\n" +
		"about the erasure, without its user: receipt_id steps rules error",
	"user_month":       "handled: user_id\nconfiguration: meter",
	"violation_minute": "handled: subject",
}

func TestEveryColumnThatCanHoldAUserIsAccountedFor(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for table, text := range userData {
		for line := range strings.SplitSeq(text, "\n") {
			_, columns, _ := strings.Cut(line, ": ")
			for column := range strings.FieldsSeq(columns) {
				known[table+"."+column] = true
			}
		}
	}
	conn := connect(t, devdbtest.Postgres(t))
	stored := lines(t, conn, `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND udt_name IN ('text', '_text', 'varchar', 'bytea', 'json', 'jsonb', 'inet',
			'cidr', '_cidr', '_int8')
			AND table_name = ANY ($1) ORDER BY 1`, tablesOfTenants(t, conn))
	for _, column := range stored {
		if !known[column] {
			t.Errorf("%s can hold a user's id or address, and userData does not say what erasing a user does with it",
				column)
		}
	}
	for column := range known {
		if !slices.Contains(stored, column) {
			t.Errorf("userData lists %s, and there is no such column", column)
		}
	}
}
