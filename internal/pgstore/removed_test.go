package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/rules"
)

func rowsOf(t *testing.T, conn *pgx.Conn, tenant rules.TenantID) (rows map[string]int) {
	t.Helper()
	rows = map[string]int{}
	for _, table := range lines(t, conn,
		`SELECT relname::text FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND attname = 'tenant_id' AND NOT attisdropped`) {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" WHERE tenant_id = $1",
			tenant).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			rows[table] = n
		}
	}
	return rows
}

func TestARemovedTenantIsRestoredOrErased(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	fillEveryTable(t, w)
	ctx, owner := t.Context(), connect(t, w.url)
	exec(t, w.url, "INSERT INTO account (email, password_hash, unproven_in) VALUES ('claimed@example.com', 'x', $1)",
		w.ours.ID)
	for _, row := range []string{
		"session (account_id, token_digest) SELECT account_id, sha256('')",
		"mailed_link (account_id, purpose, token_digest, expires_at) SELECT account_id, 'proof', sha256(''), now()",
		"account_identity (account_id, issuer, subject, email) SELECT account_id, 'https://idp', '1', email",
		"second_factor (account_id, secret) SELECT account_id, 'secret'",
		"recovery_code (account_id, code_digest) SELECT account_id, sha256('')",
		"pending_sign_in (account_id, token_digest, expires_at) SELECT account_id, sha256(''), now()",
	} {
		exec(t, w.url, "INSERT INTO "+row+" FROM account WHERE unproven_in = $1", w.ours.ID)
	}
	exec(t, w.url, "UPDATE account SET second_factor_at = now(), recovery_codes_at = now() WHERE unproven_in = $1",
		w.ours.ID)
	remove := func() {
		t.Helper()
		tenant := must(w.Tenant(ctx, w.ours.ID))(t)
		tenant.Suspended = true
		must(w.UpdateTenant(ctx, tenant))(t)
		if err := w.RemoveTenant(ctx, w.ours.ID, rules.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	known := w.revisions(t)
	remove()
	if erased := must(w.EraseRemovedTenants(ctx, time.Now().Add(-time.Hour), forgetNothing))(t); erased != 0 {
		t.Error("it is erased within its grace period")
	}
	restored := must(w.RestoreTenant(ctx, "ours"))(t)
	if !restored.Suspended || restored.Name != w.ours.Name || restored.Revision <= known[w.ours.ID] {
		t.Errorf("restored it is %+v", restored)
	}
	wantError(t, second(w.RestoreTenant(ctx, "ours")), rules.ErrNotFound)
	wantError(t, second(w.RestoreTenant(ctx, "nobody")), rules.ErrNotFound)

	remove()
	theirs, ours := rowsOf(t, owner, w.theirs.ID), rowsOf(t, owner, w.ours.ID)
	for _, table := range tablesOfTenants(t, owner) {
		if ours[table]+ours[table+"_default"] == 0 { // the rows of partitioned tables are in partitions
			t.Errorf("the tenant has no row in %s, so nothing is shown; see fillEveryTable", table)
		}
	}
	held := thingsOfAccounts(t, owner)
	for _, thing := range held {
		if len(lines(t, owner, thing, w.ours.ID)) == 0 {
			t.Errorf("the account that joined by a link has nothing by %q, so nothing is shown", thing)
		}
	}
	if erased := must(w.EraseRemovedTenants(ctx, time.Now().Add(time.Hour), forgetNothing))(t); erased != 1 {
		t.Errorf("%d tenants were erased, want 1", erased)
	}
	if left := rowsOf(t, owner, w.ours.ID); len(left) != 1 || left["tenant"] != 1 {
		t.Errorf("left are %v, want the tenant's own row, which keeps its slug from being used again", left)
	}
	if now := rowsOf(t, owner, w.theirs.ID); fmt.Sprint(now) != fmt.Sprint(theirs) {
		t.Errorf("the other tenant had %v and has %v", theirs, now)
	}
	for _, thing := range append(held, "SELECT email FROM account WHERE unproven_in = $1 AND (email LIKE 'claimed%' "+
		"OR coalesce(second_factor_at, recovery_codes_at) IS NOT NULL)") {
		if left := lines(t, owner, thing, w.ours.ID); len(left) > 0 {
			t.Errorf("left is %q by %q", left, thing)
		}
	}
	receipt := must(w.RemovedTenants(ctx, "", 10))(t)
	if len(receipt) != 1 || receipt[0].Slug != "ours" || receipt[0].ErasedAt.IsZero() ||
		receipt[0].Rows["rate_limit_rule"] != int64(ours["rate_limit_rule"]) ||
		receipt[0].Rows["rate_limit_violation"] == 0 {
		t.Errorf("the receipt is %+v", receipt)
	}
	log := lines(t, owner, "SELECT concat_ws(' ', action, object_id, before) FROM platform_audit_event ORDER BY "+
		"audit_id DESC LIMIT 1")
	if len(log) != 1 || !strings.HasPrefix(log[0], "remove ours {\"rows\": {") {
		t.Errorf("the platform's log ends with %q", log)
	}
	wantError(t, second(w.RestoreTenant(ctx, "ours")), rules.ErrFinal)
	if erased := must(w.EraseRemovedTenants(ctx, time.Now().Add(time.Hour), forgetNothing))(t); erased != 0 {
		t.Error("it is erased again")
	}
	if _, err := connect(t, runtimeOf(t, w.url)).Exec(ctx, "SELECT erase_removed_tenant($1, 10)",
		w.theirs.ID); err == nil {
		t.Error("a tenant that is not removed can be erased")
	}
}

// thingsOfAccounts has a query for each table of no tenant that refers to accounts.
func thingsOfAccounts(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return lines(t, conn, `SELECT format('SELECT to_jsonb(o)::text FROM %s AS o JOIN account AS a ON a.account_id = o.%I
			WHERE a.unproven_in = $1', c.conrelid::regclass, k.attname)
		FROM pg_constraint AS c JOIN pg_attribute AS k ON k.attrelid = c.conrelid AND k.attnum = c.conkey[1]
		WHERE c.contype = 'f' AND c.confrelid = 'account'::regclass AND NOT EXISTS (
			SELECT FROM pg_attribute AS t WHERE t.attrelid = c.conrelid AND t.attname = 'tenant_id')`)
}

func forgetNothing(context.Context, rules.TenantID) error { return nil }

func TestARemovedTenantThatCannotBeErasedBlocksNoOther(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx := t.Context()
	for _, id := range []rules.TenantID{w.theirs.ID, w.ours.ID} {
		tenant := must(w.Tenant(ctx, id))(t)
		tenant.Suspended = true
		must(w.UpdateTenant(ctx, tenant))(t)
		if err := w.RemoveTenant(ctx, id, rules.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, w.url, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'refused by a test'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON rate_limit_rule FOR EACH ROW WHEN (OLD.tenant_id = %d)
			EXECUTE FUNCTION refuse()`, w.theirs.ID))
	erased, err := w.EraseRemovedTenants(ctx, time.Now().Add(time.Hour), func(context.Context, rules.TenantID) error {
		return errors.New("the store of buckets is away")
	})
	if erased != 1 || err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("erase removed tenant %d: ", w.theirs.ID)) ||
		!strings.Contains(err.Error(), fmt.Sprintf("forget removed tenant %d: the store", w.ours.ID)) {
		t.Errorf("%d tenants are erased, want 1: %v", erased, err)
	}
	if left := rowsOf(t, connect(t, w.url), w.ours.ID); len(left) != 1 || left["tenant"] != 1 {
		t.Errorf("of the other tenant are left %v", left)
	}
}
