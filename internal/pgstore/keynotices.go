package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ auth.KeyNoticeStore = (*Store)(nil)

const (
	// keyNoticeLock makes one process at a time send notices about keys.
	keyNoticeLock = 0x736c75696365_03
	keysPerRound  = 2000
	keysPerMail   = 50
	keyRecipients = 50

	reminderGivenUp = 24 * time.Hour
	leftGivenUp     = 7 * 24 * time.Hour

	noticeTime = "2 January 2006, 15:04 MST"
)

type keyNotice struct {
	tenant     rules.TenantID
	slug, name string
	lines      []string
	creators   []string // ids of accounts
}

// TellOfExpiringKeys queues mail about keys that expire soon.
func (s *Store) TellOfExpiringKeys(ctx context.Context, now time.Time) (messages int, err error) {
	dayEnds := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
	err = s.tellOfKeys(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		rows, err := q.ExpiringKeys(ctx, dayEnds, now, keysPerRound)
		if err != nil {
			return err
		}
		var notices []*keyNotice
		for _, row := range rows {
			n := lastNotice(&notices, row.TenantID, row.Slug, row.TenantName)
			line := fmt.Sprintf("%s (%s) expires on %s", row.Name, row.KeyID, orZero(row.ExpiresAt).Format(noticeTime))
			if row.CreatedByName != "" {
				line += ", made by " + row.CreatedByName
			}
			n.lines = append(n.lines, line)
			if row.CreatedByKind == string(rules.ActorAccount) {
				n.creators = append(n.creators, row.CreatedByID)
			}
			if err := q.NoteKeyNotice(ctx, dbsqlc.NoteKeyNoticeParams{
				TenantID: row.TenantID, KeyID: row.KeyID, Notice: "expires_" + strconv.Itoa(int(row.Days)), ToldAt: now,
			}); err != nil {
				return err
			}
		}
		messages, err = mailKeyNotices(ctx, q, auth.MailKeysExpire, notices, now.Add(reminderGivenUp))
		return err
	})
	return messages, wrap(err, "tell of keys that expire")
}

// TellOfKeysLeft writes keys whose creators have left to the security log, and queues mail about them.
func (s *Store) TellOfKeysLeft(ctx context.Context, now time.Time, byMail bool) (left []auth.AccessEvent, err error) {
	err = s.tellOfKeys(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.ForgetReturnedCreators(ctx); err != nil {
			return err
		}
		if err := q.ForgetReturnedServiceCreators(ctx); err != nil {
			return err
		}
		rows, err := q.KeysLeftBehind(ctx, now, keysPerRound)
		if err != nil || len(rows) == 0 {
			return err
		}
		var notices []*keyNotice
		for _, row := range rows {
			n := lastNotice(&notices, row.TenantID, row.Slug, row.TenantName)
			line := fmt.Sprintf("%s (%s), made by %s", row.Name, row.KeyID, row.CreatedByName)
			if row.ExpiresAt != nil {
				line += ", works until " + row.ExpiresAt.UTC().Format(noticeTime)
			}
			n.lines = append(n.lines, line)
			creator, _ := strconv.ParseInt(row.CreatedByID, 10, 64) // 0, none, for what is no account
			event := auth.KeyLeft(now, auth.AccountID(creator), row.CreatedByName, row.KeyID, row.Name)
			event.TenantID, event.Tenant = row.TenantID, row.Slug
			left = append(left, event)
			if err := q.NoteKeyNotice(ctx, dbsqlc.NoteKeyNoticeParams{
				TenantID: row.TenantID, KeyID: row.KeyID, Notice: "creator_left", ToldAt: now,
			}); err != nil {
				return err
			}
		}
		if err := q.WriteAccess(ctx, accessColumns(left)); err != nil || !byMail {
			return err
		}
		_, err = mailKeyNotices(ctx, q, auth.MailKeysLeft, notices, now.Add(leftGivenUp))
		return err
	})
	return left, wrap(err, "tell of keys whose creators have left")
}

func (s *Store) tellOfKeys(ctx context.Context, do func(context.Context, *dbsqlc.Queries) error) error {
	return s.transaction(ctx, classNotice, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		ours, err := q.TryLock(ctx, keyNoticeLock)
		if err != nil || !ours {
			return err
		}
		return do(ctx, q)
	})
}

func lastNotice(notices *[]*keyNotice, tenant rules.TenantID, slug, name string) *keyNotice {
	if n := len(*notices); n > 0 && (*notices)[n-1].tenant == tenant {
		return (*notices)[n-1]
	}
	*notices = append(*notices, &keyNotice{tenant: tenant, slug: slug, name: name})
	return (*notices)[len(*notices)-1]
}

func mailKeyNotices(ctx context.Context, q *dbsqlc.Queries, kind auth.MailKind, notices []*keyNotice,
	giveUpAt time.Time,
) (messages int, err error) {
	for _, n := range notices {
		people, err := n.recipients(ctx, q)
		if err != nil {
			return messages, err
		}
		count := len(n.lines)
		if count > keysPerMail {
			n.lines = append(n.lines[:keysPerMail], fmt.Sprintf("and %d more", count-keysPerMail))
		}
		facts := map[string]string{auth.FactKeys: strings.Join(n.lines, "\n"), auth.FactCount: strconv.Itoa(count)}
		if n.tenant != 0 {
			facts[auth.FactTenant], facts[auth.FactSlug] = n.name, n.slug
		}
		for _, person := range people {
			mail := auth.Mail{
				Tenant: n.tenant, Kind: kind, To: person.Email, Account: person.AccountID, Facts: facts,
				GiveUpAt: giveUpAt,
			}
			if _, err := queueMail(ctx, q, mail, auth.MailLimits{}); err != nil {
				return messages, err
			}
			messages++
		}
	}
	return messages, nil
}

func (n *keyNotice) recipients(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.RecipientsOfTenantRow, error) {
	if n.tenant != 0 {
		return q.RecipientsOfTenant(ctx, n.tenant, listOf(n.creators), keyRecipients)
	}
	rows, err := q.RecipientsOfPlatform(ctx, keyRecipients)
	return each(rows, func(row dbsqlc.RecipientsOfPlatformRow) dbsqlc.RecipientsOfTenantRow {
		return dbsqlc.RecipientsOfTenantRow(row)
	}), err
}
