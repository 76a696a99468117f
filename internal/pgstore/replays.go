package pgstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

var (
	_ replay.Store  = (*Store)(nil)
	_ replay.Reader = (*Store)(nil)
)

const maxHistory = 20_000

// History undoes the audit log's entries on the present state.
func (s *Store) History(ctx context.Context, tenant rules.TenantID, since time.Time) (*replay.History, error) {
	h := &replay.History{KnownSince: since}
	err := s.oneView(ctx, classLoad, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
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
			entries[i].Before, entries[i].After = shownImage(entries[i].Before), shownImage(entries[i].After)
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
	return h, wrap(err, "read the history of tenant %d", tenant)
}

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

type pastOverride struct {
	overrideImage
	InForceSince time.Time `json:"in_force_since"`
}

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
		before, err := decodeImage[ruleImage](entry.Before)
		if err != nil {
			return err
		}
		after, err := decodeImage[ruleImage](entry.After)
		if err != nil {
			return err
		}
		if after != nil {
			after.TenantID = id
			change.Rules = []rules.Rule{after.Rule}
			delete(p.rules, after.ID)
		}
		if before != nil {
			before.TenantID = id
			p.rules[before.ID] = before.Rule
			if after == nil {
				before.Removed = true
				change.Rules = []rules.Rule{before.Rule}
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

// RequestReplay queues a replay, or returns replay.ErrTooMany, and deletes old ones beyond replay.MaxKept.
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
		if err != nil {
			return err
		}
		job = replayFromRow(row)
		return enqueue(ctx, q, tenant, replay.JobKind, job.ID, time.Time{})
	})
	return job, wrap(err, "request a replay")
}

// CancelReplay ends a replay that waits or runs.
func (s Writer) CancelReplay(ctx context.Context, tenant rules.TenantID, id int64) (job replay.Job, err error) {
	err = s.inTenantAs(ctx, s.by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.CancelReplay(ctx, tenant, id); err != nil {
			return err
		}
		row, err := q.Replay(ctx, tenant, id)
		job = replayFromRow(row)
		return err
	})
	return job, wrap(err, "cancel replay %d", id)
}

func replayFromRow(row dbsqlc.Replay) replay.Job {
	return replay.Job{
		Tenant: row.TenantID, ID: row.ReplayID, RequestedAt: row.RequestedAt.UTC(),
		By:      row.RequestedByName,
		Request: row.Request, State: replay.State(row.State), Claim: row.Claim, Progress: row.Progress,
		StartedAt:  orZero(row.StartedAt),
		FinishedAt: orZero(row.FinishedAt), Failure: row.Failure, Result: row.Result,
	}
}

// Replay returns one replay.
func (s *Store) Replay(ctx context.Context, tenant rules.TenantID, id int64) (replay.Job, error) {
	row, err := s.queriesFor(classRead, only(tenant)).Replay(ctx, tenant, id)
	return replayFromRow(row), wrap(err, "read replay %d", id)
}

// Replays returns a page of replays, the latest first, without files and results.
func (s *Store) Replays(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]replay.Job, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.queriesFor(classRead, only(tenant)).Replays(ctx, tenant, before, rowLimit(limit))
	return each(rows, func(row dbsqlc.ReplaysRow) replay.Job {
		return replay.Job{
			Tenant: row.TenantID, ID: row.ReplayID, RequestedAt: row.RequestedAt.UTC(), By: row.RequestedByName,
			Request: row.Request,
			State:   replay.State(row.State), Progress: row.Progress, StartedAt: orZero(row.StartedAt),
			FinishedAt: orZero(row.FinishedAt),
			Failure:    row.Failure,
		}
	}), wrap(err, "list replays")
}

// BeginReplay lets a claim of a job run a replay.
func (s *Store) BeginReplay(ctx context.Context, tenant rules.TenantID, id, claim int64) (replay.Job, error) {
	row, err := s.queriesFor(classBackground, only(tenant)).BeginReplay(ctx, claim, tenant, id)
	if err == nil && row.State != string(replay.Running) {
		err = rules.ErrNotFound // it was canceled while no process ran it
	}
	return replayFromRow(row), wrap(err, "begin replay %d", id)
}

// NoteReplay stores a replay's progress, and returns whether somebody canceled it.
func (s *Store) NoteReplay(ctx context.Context, job *replay.Job, progress float64) (isCanceled bool, err error) {
	isCanceled, err = s.queriesFor(classBackground, only(job.Tenant)).NoteReplay(ctx, dbsqlc.NoteReplayParams{
		Progress: progress, TenantID: job.Tenant, ReplayID: job.ID, Claim: job.Claim,
	})
	return isCanceled, wrap(err, "store the progress of replay %d", job.ID)
}

// FinishReplay stores the end of a replay.
func (s *Store) FinishReplay(ctx context.Context, job *replay.Job) (stored bool, err error) {
	rows, err := s.queriesFor(classBackground, only(job.Tenant)).FinishReplay(ctx, dbsqlc.FinishReplayParams{
		TenantID: job.Tenant, ReplayID: job.ID, Claim: job.Claim, State: string(job.State), Failure: job.Failure,
		Result: job.Result,
	})
	return rows > 0, wrap(err, "store the end of replay %d", job.ID)
}
