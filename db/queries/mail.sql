-- name: MailOfInvitations :many
SELECT * FROM mail WHERE tenant_id = sqlc.arg(tenant_id) AND invitation_id = ANY (sqlc.arg(invitation_ids)::bigint[]);
