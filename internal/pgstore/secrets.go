package pgstore

import (
	"context"
	"errors"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// A secret's purpose and tenant are needed to open it.
const (
	alertUse = "alert"
	auditUse = "audit webhook"
)

// SealWith makes the Store seal the secrets of alerts and audit webhooks; call it before the Store's first use. Without
// a key, secrets are stored in plain text.
func (s *Store) SealWith(vault auth.Vault) { s.vault = vault }

// opened reports as isClosed a secret that is sealed under a key that is not configured.
func (s *Store) opened(use string, tenant rules.TenantID, stored string) (secret string, isClosed bool) {
	secret, err := s.vault.OpenText(use, int64(tenant), stored)
	return secret, err != nil
}

func (s *Store) sealedAgain(alert *violations.Alert, stored string) (string, error) {
	secret, isClosed := s.opened(alertUse, alert.Tenant, stored)
	if isClosed && alert.SecretIsClosed && alert.Secret == "" || !isClosed && alert.Secret == secret {
		return stored, nil
	}
	return s.vault.SealText(alertUse, int64(alert.Tenant), alert.Secret)
}

const secretsPerPage = 500

// SealSecrets seals secrets that are in plain text, or sealed under a former key, and counts those that it cannot open.
// Each is a transaction of its own, which the audit log shows as the system's.
func (s *Store) SealSecrets(ctx context.Context) (sealed, closed int, err error) {
	if !s.vault.HasKey() {
		return 0, 0, nil
	}
	for after := (dbsqlc.SecretsToSealRow{}); ; {
		page, err := s.queriesFor(classBackground, everyTenant).SecretsToSeal(ctx, dbsqlc.SecretsToSealParams{
			Prefix: s.vault.SealedPrefix(), AfterTenant: int64(after.TenantID), AfterAlert: after.AlertID,
			PageSize: secretsPerPage,
		})
		if err != nil {
			return sealed, closed, wrap(err, "look for secrets to seal")
		}
		for _, row := range page {
			after = row
			switch isSealed, err := s.sealSecret(ctx, row); {
			case errors.Is(err, auth.ErrClosed):
				closed++
			case errors.Is(err, rules.ErrNotFound): // the tenant was removed
			case err != nil:
				return sealed, closed, wrap(err, "seal a secret of tenant %d", row.TenantID)
			case isSealed:
				sealed++
			}
		}
		if len(page) < secretsPerPage {
			return sealed, closed, nil
		}
	}
}

// sealSecret keeps the version, because nothing that people see changes.
func (s *Store) sealSecret(ctx context.Context, row dbsqlc.SecretsToSealRow) (isSealed bool, err error) {
	use := alertUse
	if row.AlertID == 0 {
		use = auditUse
	}
	secret, err := s.vault.OpenText(use, int64(row.TenantID), row.Secret)
	if err != nil {
		return false, err
	}
	sealed, err := s.vault.SealText(use, int64(row.TenantID), secret)
	if err != nil {
		return false, err
	}
	by := system("seal the secret")
	err = s.inTenantAs(ctx, by, row.TenantID, func(ctx context.Context, q *dbsqlc.Queries) error {
		var changed int64
		if use == auditUse {
			changed, err = q.SealAuditSecret(ctx, sealed, row.TenantID, row.Secret)
		} else {
			changed, err = q.SealAlertSecret(ctx, dbsqlc.SealAlertSecretParams{
				Sealed: sealed, TenantID: row.TenantID, AlertID: row.AlertID, Stored: row.Secret,
			})
		}
		isSealed = changed == 1
		return err
	})
	return isSealed && err == nil, err
}
