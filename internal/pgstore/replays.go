package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

var (
	_ replay.Store     = (*Store)(nil)
	_ replay.Reader    = (*Store)(nil)
	_ replay.Requester = Writer{}
)

const (
	// maxHistory caps the audit entries that a history is made of. What was before the oldest of them is unknown.
	maxHistory = 20_000
	// replayLock lets one process at a time claim a replay.
	replayLock = 0x736c75696365_02
)

// History returns what checks depended on since a time: what stands now, with the entries of the audit log undone.
func (s *Store) History(ctx context.Context, tenant rules.TenantID, since time.Time) (*replay.History, error) {
	release, err := take(ctx, s.places.bulk)
	if err != nil {
		return nil, err
	}
	defer release()
	h := &replay.History{KnownSince: since}
	err = s.oneView(ctx, classLoad, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.Tenant(ctx, tenant)
		if err != nil {
			return domainError(err)
		}
		ruleRows, err := q.AllRules(ctx, tenant)
		if err != nil {
			return err
		}
		overrideRows, err := q.OverridesSince(ctx, tenant, since)
		if err != nil {
			return err
		}
		entries, err := q.TrafficHistory(ctx, tenant, since, maxHistory)
		if err != nil {
			return err
		}
		past := newPast(tenantFromRow(row), s.rulesFromRows(ctx, ruleRows), each(overrideRows, overrideFromRow))
		for i := range entries {
			if err := past.undo(h, &entries[i]); err != nil {
				return fmt.Errorf("read audit entry %d: %w", entries[i].AuditID, err)
			}
		}
		if len(entries) == maxHistory {
			h.KnownSince = entries[len(entries)-1].At.UTC()
		}
		h.Start = past.rows()
		slices.Reverse(h.Changes)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the history of tenant %d: %w", tenant, err)
	}
	return h, nil
}

// past is what stood at some time.
type past struct {
	tenant    rules.Tenant
	rules     map[rules.RuleID]rules.Rule
	overrides map[pastOverrideKey]rules.Override
}

type pastOverrideKey struct {
	rule rules.RuleID
	user string
}

func newPast(tenant rules.Tenant, all []rules.Rule, overrides []rules.Override) *past {
	p := &past{tenant: tenant, rules: map[rules.RuleID]rules.Rule{}, overrides: map[pastOverrideKey]rules.Override{}}
	for i := range all {
		p.rules[all[i].ID] = all[i]
	}
	for i := range overrides {
		p.overrides[pastOverrideKey{overrides[i].RuleID, overrides[i].UserID}] = overrides[i]
	}
	return p
}

func (p *past) rows() (rows snapshot.Rows) {
	rows.Tenants = []rules.Tenant{p.tenant}
	for _, rule := range p.rules {
		rows.Rules = append(rows.Rules, rule)
	}
	for _, override := range p.overrides {
		rows.Overrides = append(rows.Overrides, override)
	}
	return rows
}

// pastRule is a rule as the audit log shows it.
type pastRule struct {
	ruleImage
	Name         string    `json:"name"`
	KeyPattern   string    `json:"key_pattern"`
	Plan         *string   `json:"plan"`
	Version      int64     `json:"version"`
	InForceSince time.Time `json:"in_force_since"`
}

func (i *pastRule) rule(tenant rules.TenantID) (rules.Rule, error) {
	pattern, err := rules.ParsePattern(i.KeyPattern)
	rule := i.ruleImage.rule()
	rule.TenantID, rule.Name, rule.Pattern, rule.Plan = tenant, i.Name, pattern, orEmpty(i.Plan)
	rule.Version, rule.InForceSince = i.Version, i.InForceSince.UTC()
	return rule, err
}

type pastOverride struct {
	overrideImage
	InForceSince time.Time `json:"in_force_since"`
}

// undo goes back over an entry, and notes it as a change forward.
func (p *past) undo(h *replay.History, entry *dbsqlc.TrafficHistoryRow) error {
	change := replay.Change{At: entry.At.UTC()}
	id := p.tenant.ID
	switch entry.ObjectKind {
	case "tenant":
		change.Tenants = []rules.Tenant{p.tenant}
		before, err := decodeImage[tenantImage](entry.Before)
		if err != nil {
			return err
		}
		if before != nil {
			was := before.tenant()
			p.tenant.InShadow, p.tenant.Settings = was.InShadow, was.Settings
		}
	case "rule":
		before, err := decodeImage[pastRule](entry.Before)
		if err != nil {
			return err
		}
		after, err := decodeImage[pastRule](entry.After)
		if err != nil {
			return err
		}
		if after != nil {
			rule, err := after.rule(id)
			if err != nil {
				return err
			}
			change.Rules = []rules.Rule{rule}
			delete(p.rules, rule.ID)
		}
		if before != nil {
			rule, err := before.rule(id)
			if err != nil {
				return err
			}
			p.rules[rule.ID] = rule
			if after == nil {
				rule.Removed = true
				change.Rules = []rules.Rule{rule}
			}
		}
	case "override":
		before, err := decodeImage[pastOverride](entry.Before)
		if err != nil {
			return err
		}
		after, err := decodeImage[pastOverride](entry.After)
		if err != nil {
			return err
		}
		if after != nil {
			o := after.override()
			o.TenantID, o.InForceSince = id, after.InForceSince.UTC()
			change.Overrides = []rules.Override{o}
			delete(p.overrides, pastOverrideKey{o.RuleID, o.UserID})
		}
		if before != nil {
			o := before.override()
			o.TenantID, o.InForceSince = id, before.InForceSince.UTC()
			p.overrides[pastOverrideKey{o.RuleID, o.UserID}] = o
			if after == nil {
				o.RemovedAt = entry.At.UTC()
				change.Overrides = []rules.Override{o}
			}
		}
	}
	h.Changes = append(h.Changes, change)
	return nil
}

// RequestReplay lets a replay wait for a process.
func (s Writer) RequestReplay(ctx context.Context, tenant rules.TenantID, request []byte) (job replay.Job, err error) {
	err = s.inTenantAs(ctx, s.by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		open, err := q.OpenReplays(ctx, tenant)
		if err != nil {
			return err
		}
		if open >= replay.MaxOpen {
			return replay.ErrTooMany
		}
		if err := q.DropEndedReplays(ctx, tenant, replay.MaxKept); err != nil {
			return err
		}
		row, err := q.RequestReplay(ctx, dbsqlc.RequestReplayParams{
			TenantID: tenant, ByKind: string(s.by.Kind), ByID: s.by.ID, ByName: s.by.Name, Request: request,
		})
		job = replayFromRow(row)
		return err
	})
	if err != nil {
		return replay.Job{}, fmt.Errorf("request a replay: %w", err)
	}
	return job, nil
}

// CancelReplay ends one that waits or runs. One that has ended stays as it is.
func (s Writer) CancelReplay(ctx context.Context, tenant rules.TenantID, id int64) (job replay.Job, err error) {
	err = s.inTenantAs(ctx, s.by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.CancelReplay(ctx, tenant, id); err != nil {
			return err
		}
		row, err := q.Replay(ctx, tenant, id)
		job = replayFromRow(row)
		return err
	})
	if err != nil {
		return replay.Job{}, fmt.Errorf("cancel replay %d: %w", id, err)
	}
	return job, nil
}

func replayFromRow(row dbsqlc.Replay) replay.Job {
	return replay.Job{
		Tenant: row.TenantID, ID: row.ReplayID, RequestedAt: row.RequestedAt.UTC(),
		By:      row.RequestedByName,
		Request: row.Request, State: replay.State(row.State), Attempts: int(row.Attempts), Progress: row.Progress, StartedAt: orZero(row.StartedAt),
		FinishedAt: orZero(row.FinishedAt), Failure: row.Failure, Result: row.Result,
	}
}

// Replay returns one.
func (s *Store) Replay(ctx context.Context, tenant rules.TenantID, id int64) (replay.Job, error) {
	row, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.Replay, error) {
		return q.Replay(ctx, tenant, id)
	})
	if err != nil {
		return replay.Job{}, fmt.Errorf("read replay %d: %w", id, err)
	}
	return replayFromRow(row), nil
}

// Replays returns a page, the latest first, without files and results.
func (s *Store) Replays(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]replay.Job, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ReplaysRow, error) {
		return q.Replays(ctx, tenant, before, rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("list replays: %w", err)
	}
	return each(rows, func(row dbsqlc.ReplaysRow) replay.Job {
		return replay.Job{
			Tenant: row.TenantID, ID: row.ReplayID, RequestedAt: row.RequestedAt.UTC(), By: row.RequestedByName, Request: row.Request,
			State: replay.State(row.State), Progress: row.Progress, StartedAt: orZero(row.StartedAt), FinishedAt: orZero(row.FinishedAt),
			Failure: row.Failure,
		}
	}), nil
}

// ClaimReplay takes one that waits, or returns rules.ErrNotFound.
func (s *Store) ClaimReplay(ctx context.Context, holder string, lease time.Duration) (job replay.Job, err error) {
	err = s.transaction(ctx, classBackground, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		ours, err := q.TryUpkeep(ctx, replayLock)
		if err != nil {
			return err
		}
		if !ours {
			return rules.ErrNotFound
		}
		row, err := q.ClaimReplay(ctx, holder, lease.Seconds())
		if errors.Is(err, pgx.ErrNoRows) {
			return rules.ErrNotFound
		}
		job = replayFromRow(row)
		return err
	})
	return job, err
}

// RenewReplay keeps a claimed one. isOver means that it is to end: somebody canceled it, or another process has it.
func (s *Store) RenewReplay(ctx context.Context, job *replay.Job, holder string, progress float64, lease time.Duration) (isOver bool, err error) {
	isOver, err = s.queriesFor(classBackground, only(job.Tenant)).RenewReplay(ctx, dbsqlc.RenewReplayParams{
		TenantID: job.Tenant, ReplayID: job.ID, Holder: holder, Progress: progress, LeaseSeconds: lease.Seconds(),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	return isOver, err
}

// ReleaseReplay lets another process take a claimed one at once.
func (s *Store) ReleaseReplay(ctx context.Context, job *replay.Job, holder string) error {
	return s.queriesFor(classBackground, only(job.Tenant)).ReleaseReplay(ctx, job.Tenant, job.ID, holder)
}

// FinishReplay stores how a claimed one ended.
func (s *Store) FinishReplay(ctx context.Context, job *replay.Job, holder string) error {
	_, err := s.queriesFor(classBackground, only(job.Tenant)).FinishReplay(ctx, dbsqlc.FinishReplayParams{
		TenantID: job.Tenant, ReplayID: job.ID, Holder: holder, State: string(job.State), Failure: job.Failure, Result: job.Result,
	})
	return err
}
