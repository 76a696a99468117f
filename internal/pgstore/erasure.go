package pgstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ rules.UserRecords = (*Store)(nil)

const (
	erasureKind = "erase user"
	// workTurn is how long an erasure or an export works before others have their turn.
	workTurn       = 2 * time.Second
	longestWork    = 6 * time.Minute
	erasuresAtOnce = 4

	// erasedPerPiece rows take less than a second.
	erasedPerPiece = 5_000
	blocksPerPiece = 50
	seenPerPiece   = 1_000
)

// EraseUser requests the erasure of a user, makes the next try of a running one due, or returns
// rules.ErrTooManyErasures. Checks in flight may record the user after the end, and other processes keep plan and
// overrides for a minute.
func (s Writer) EraseUser(ctx context.Context, tenant rules.TenantID, userID string) (rules.Erasure, error) {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	writer := s.acting("erase user")
	var row dbsqlc.UserErasure
	err := s.inTenantAs(ctx, s.by, tenant, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		row, err = q.ErasureOfUser(ctx, tenant, userID)
		if errors.Is(err, pgx.ErrNoRows) {
			var open int64
			if open, err = q.CountOpenErasures(ctx, tenant); err != nil {
				return err
			}
			if open >= rules.MaxOpenErasures {
				return rules.ErrTooManyErasures
			}
			row, err = q.RequestErasure(ctx, dbsqlc.RequestErasureParams{
				TenantID: tenant, ReceiptID: "erased-" + hex.EncodeToString(random), UserID: userID,
				Actor: actorSetting(writer.by),
			})
		}
		if err != nil {
			return err
		}
		_, err = q.EnqueueJob(ctx, dbsqlc.EnqueueJobParams{
			TenantID: tenant, Kind: erasureKind, About: strconv.FormatInt(row.ErasureID, 10), IsRetry: true,
		})
		return err
	})
	if err != nil {
		return rules.Erasure{}, fmt.Errorf("erase a user of tenant %d: %w", tenant, err)
	}
	return erasureFromRow(row, time.Time{})
}

// Erasure returns an erasure by the id of its receipt.
func (s *Store) Erasure(ctx context.Context, tenant rules.TenantID, id string) (rules.Erasure, error) {
	q := s.queriesFor(classRead, only(tenant))
	row, err := q.Erasure(ctx, tenant, id)
	var next time.Time
	if err == nil {
		next, err = nextTry(ctx, q, tenant, erasureKind, row.ErasureID)
	}
	if err != nil {
		return rules.Erasure{}, wrap(err, "read the erasure %q", id)
	}
	return erasureFromRow(row, next)
}

// FillBuckets fills the buckets of a user, and returns how many.
type FillBuckets func(ctx context.Context, tenant rules.TenantID, userID string) (int64, error)

// ErasureWork returns the kind of job that erases users, which is never parked: nobody must stay half erased.
func (s *Store) ErasureWork(fill FillBuckets) jobs.Kind {
	return jobs.Kind{
		Name: erasureKind, MaxConcurrent: erasuresAtOnce, PerTenant: 1, Timeout: longestWork, Attempts: jobs.Endless,
		Do: func(ctx context.Context, job *jobs.Job) (time.Time, error) {
			id, err := strconv.ParseInt(job.About, 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("read the id of an erasure: %w", err)
			}
			var step string
			again, err := inPieces(func() (goesOn bool, err error) {
				step, goesOn, err = s.erasePiece(ctx, rules.TenantID(job.Tenant), id, fill)
				return goesOn, err
			})
			if err != nil && ctx.Err() == nil { // else the process stops, or has lost the job
				err = errors.Join(err, s.noteErasureError(ctx, rules.TenantID(job.Tenant), id, step, err))
			}
			return again, err
		},
	}
}

// inPieces works until all is done or its turn is over, and returns when it goes on.
func inPieces(piece func() (goesOn bool, err error)) (again time.Time, err error) {
	for end := time.Now().Add(workTurn); ; {
		goesOn, err := piece()
		switch {
		case err != nil || !goesOn:
			return time.Time{}, err
		case time.Now().After(end):
			return jobs.DueNow, nil
		}
	}
}

func (s *Store) noteErasureError(ctx context.Context, tenant rules.TenantID, id int64, step string, cause error) error {
	words := fmt.Sprintf("The step %s failed: %s", cmp.Or(step, "receipt"), inWords(cause))
	if step == stepBuckets {
		words = "The user's buckets could not be filled: their store or the tenant's rules could not be read."
	}
	return s.queriesFor(classBackground, only(tenant)).NoteErasureError(ctx, words, tenant, id)
}

func inWords(err error) string {
	if err = domainError(err); errors.Is(err, rules.ErrAway) || errors.Is(err, context.DeadlineExceeded) {
		return "the database was away, busy or full."
	}
	return "the server's log has the reason."
}

type erasing struct {
	*dbsqlc.Queries
	tenant rules.TenantID
	user   string
	alias  string // the receipt's id
	atMost int32  // rows of a piece
	filled int64  // buckets
}

type erasureStep struct {
	name string
	// writes is for what checks depend on; then the piece is a write of the tenant.
	writes bool
	// piece goes on after a position, "" at first, and returns the next one, or "" at the end.
	piece func(e *erasing, ctx context.Context, at string) (rows int64, next string, err error)
}

// The names of erasureSteps are part of the API.
//
//nolint:gochecknoglobals // a constant
var erasureSteps = []erasureStep{
	{"assignments", true, inOnePiece((*dbsqlc.Queries).EraseAssignment)},
	{"overrides", true, inOnePiece((*dbsqlc.Queries).EraseOverrides)},
	{"violations", false, inSome((*dbsqlc.Queries).EraseViolations)},
	{"crossings", false, inSome((*dbsqlc.Queries).EraseCrossings)},
	{"counts", false, (*erasing).counts},
	{"deliveries", false, (*erasing).deliveries},
	{"traffic_blocks", false, (*erasing).traffic},
	{"replays", false, (*erasing).replays},
	// last because the triggers of the others log their changes
	{"audit_entries", false, (*erasing).audit},
	{"months", false, (*erasing).months},
	{stepBuckets, false, (*erasing).buckets},
	// last, so that an export that begins later finds nothing
	{"exports", false, (*erasing).exports},
}

// stepBuckets fills buckets before its transaction, so that none is open meanwhile.
const stepBuckets = "buckets"

type begunStep struct {
	Name string     `json:"name"`
	Rows int64      `json:"rows"`
	At   string     `json:"at,omitempty"` // where it goes on
	End  *time.Time `json:"end"`
}

// erasePiece commits a piece with its row in the table, so the next attempt goes on there and counts nothing twice.
func (s *Store) erasePiece(ctx context.Context, tenant rules.TenantID, id int64, fill FillBuckets) (name string,
	goesOn bool, err error,
) {
	open, err := s.queriesFor(classBackground, only(tenant)).OpenErasure(ctx, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err != nil {
		return "", false, wrap(err, "read erasure %d", id)
	}
	begun, step, err := nextStep(open.Steps)
	if err != nil {
		return "", false, fmt.Errorf("read the steps of erasure %d: %w", id, err)
	}
	name = "receipt"
	if step != nil {
		name = step.name
	}
	var filled int64
	if name == stepBuckets {
		if filled, err = fill(ctx, tenant, *open.UserID); err != nil {
			return name, false, fmt.Errorf("erasure %d: %w", id, err)
		}
	}
	err = s.transaction(ctx, classLoad, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		// The tenant is locked first, as in other writes, against deadlocks.
		var err error
		switch {
		case step == nil:
			_, err = q.LockTenant(ctx, tenant, open.Actor)
		case step.writes:
			_, err = q.RaiseRevision(ctx, tenant, open.Actor)
		}
		if err != nil {
			return err
		}
		row, err := q.LockErasure(ctx, tenant, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && string(row.Steps) != string(open.Steps):
			return errUnchanged // another process did this piece
		case err != nil:
			return err
		}
		e := &erasing{
			Queries: q, tenant: tenant, user: *row.UserID, alias: row.ReceiptID, atMost: s.erasedPerPiece,
			filled: filled,
		}
		if step == nil {
			return e.finish(ctx, id, begun)
		}
		now := &begun[len(begun)-1]
		rows, next, err := step.piece(e, ctx, now.At)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		now.Rows, now.At = now.Rows+rows, next
		if next == "" {
			end := time.Now().UTC()
			now.End = &end
		}
		steps, err := json.Marshal(begun)
		if err != nil {
			return err
		}
		return q.NoteErasure(ctx, steps, tenant, id)
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return name, false, wrap(writeError(err), "erasure %d", id)
	}
	return name, step != nil, nil
}

func nextStep(stored []byte) (begun []begunStep, next *erasureStep, err error) {
	if err := json.Unmarshal(stored, &begun); err != nil {
		return nil, nil, err
	}
	for i := range erasureSteps {
		step := &erasureSteps[i]
		at := slices.IndexFunc(begun, func(b begunStep) bool { return b.Name == step.name })
		switch {
		case at < 0:
			return append(begun, begunStep{Name: step.name}), step, nil
		case begun[at].End == nil:
			return begun, step, nil
		}
	}
	return begun, nil, nil
}

func (e *erasing) finish(ctx context.Context, id int64, begun []begunStep) error {
	named, err := e.PatternsWith(ctx, e.tenant, e.user)
	if err != nil {
		return err
	}
	left := []int64{}
	for _, row := range named {
		pattern, err := rules.ParsePattern(row.KeyPattern)
		if match := (rules.Match{Rule: &rules.Rule{Pattern: pattern}}); err == nil && match.Owner() == e.user {
			left = append(left, int64(row.RuleID))
		}
	}
	receipt := map[string]any{"rules": left, "erased": true}
	for _, step := range begun {
		receipt[step.Name] = step.Rows
	}
	after, err := auditImage(receipt)
	if err != nil {
		return err
	}
	_, err = e.WriteAudit(ctx, dbsqlc.WriteAuditParams{
		TenantID: int64(e.tenant), Action: "remove", ObjectKind: "user", ObjectID: e.alias, After: after,
	})
	if err != nil {
		return err
	}
	return e.FinishErasure(ctx, left, e.tenant, id)
}

func inOnePiece(do func(*dbsqlc.Queries, context.Context, rules.TenantID, string) (int64, error)) func(
	*erasing, context.Context, string,
) (int64, string, error) {
	return func(e *erasing, ctx context.Context, _ string) (rows int64, next string, err error) {
		rows, err = do(e.Queries, ctx, e.tenant, e.user)
		return rows, "", err
	}
}

// inSome is for statements that no longer find the rows that they have changed.
func inSome(do func(*dbsqlc.Queries, context.Context, rules.TenantID, string, int32) (int64, error)) func(
	*erasing, context.Context, string,
) (int64, string, error) {
	return func(e *erasing, ctx context.Context, _ string) (rows int64, next string, err error) {
		if rows, err = do(e.Queries, ctx, e.tenant, e.user, e.atMost); rows == int64(e.atMost) {
			next = "rest"
		}
		return rows, next, err
	}
}

// counts moves the user's denials to all other subjects. The walk is over all counts, because a subject can have the
// user's id anywhere.
func (e *erasing) counts(ctx context.Context, at string) (rows int64, next string, err error) {
	since := time.Unix(0, 0)
	if at == "" {
		if rows, err = e.recent(ctx); rows > 0 || err != nil {
			return rows, since.UTC().Format(time.RFC3339), err
		}
	} else if since, err = time.Parse(time.RFC3339, at); err != nil {
		return 0, "", err
	}
	last, err := e.CountsPiece(ctx, e.tenant, since, e.atMost)
	if err != nil || last.Unix() == 0 {
		return 0, "", err
	}
	until := last.Add(time.Minute)
	found, err := e.CountedSubjectsWith(ctx,
		dbsqlc.CountedSubjectsWithParams{TenantID: e.tenant, Since: since, Until: until, UserID: e.user})
	if err != nil {
		return 0, "", err
	}
	theirs := dbsqlc.EraseSubjectsParams{TenantID: e.tenant, Since: since, Until: until}
	for _, row := range found {
		if isSubjectOf(row.KeyPattern, row.Subject, e.user) {
			theirs.RuleIds = append(theirs.RuleIds, int64(row.RuleID))
			theirs.Subjects = append(theirs.Subjects, row.Subject)
		}
	}
	if len(theirs.RuleIds) > 0 {
		if err := e.LockSubjects(ctx, dbsqlc.LockSubjectsParams(theirs)); err != nil {
			return 0, "", err
		}
		rows, err = e.EraseSubjects(ctx, theirs)
	}
	return rows, until.UTC().Format(time.RFC3339), err
}

func (e *erasing) recent(ctx context.Context) (rows int64, err error) {
	if err := e.LockDenials(ctx, e.tenant, e.user); err != nil {
		return 0, err
	}
	denials, err := e.EraseDenials(ctx, e.tenant, e.user)
	if err != nil {
		return 0, err
	}
	checks, err := e.EraseCallers(ctx, e.tenant, e.user)
	return denials + checks, err
}

func (e *erasing) deliveries(ctx context.Context, at string) (rows int64, next string, err error) {
	after, upTo, err := e.after(ctx, at, e.DeliveriesPiece)
	if err != nil || upTo == 0 {
		return 0, "", err
	}
	found, err := e.DeliveriesWith(ctx,
		dbsqlc.DeliveriesWithParams{TenantID: e.tenant, After: after, UpTo: upTo, Part: e.user})
	if err != nil {
		return 0, "", err
	}
	var theirs []int64
	for _, row := range found {
		if isSubjectOf(row.KeyPattern, row.Subject, e.user) {
			theirs = append(theirs, row.DeliveryID)
		}
	}
	rows, err = e.EraseDeliveries(ctx, e.tenant, theirs)
	return rows, strconv.FormatInt(upTo, 10), err
}

func (e *erasing) traffic(ctx context.Context, at string) (rows int64, next string, err error) {
	after := dbsqlc.TrafficBlocksPieceParams{
		TenantID: e.tenant, UserID: e.user, AfterDay: pgtype.Date{Time: time.Unix(0, 0), Valid: true},
		PageSize: min(seenPerPiece, e.atMost),
	}
	if at != "" {
		var last blockPlace
		if err := json.Unmarshal([]byte(at), &last); err != nil {
			return 0, "", err
		}
		after.AfterDay.Time, after.AfterWriter, after.AfterNumber = last.Day, last.Writer, last.Number
	}
	blocks, err := e.TrafficBlocksPiece(ctx, after)
	if err != nil {
		return 0, "", err
	}
	seen := 0
	for ; seen < len(blocks) && rows < blocksPerPiece; seen++ {
		if !blocks[seen].HasUser {
			continue
		}
		if err := e.eraseFromBlock(ctx, &blocks[seen]); err != nil {
			return 0, "", err
		}
		rows++
	}
	if seen < int(after.PageSize) && seen == len(blocks) {
		return rows, "", nil
	}
	last := &blocks[seen-1]
	text, err := json.Marshal(blockPlace{last.Day.Time, last.Writer, last.Number})
	return rows, string(text), err
}

type blockPlace struct {
	Day    time.Time `json:"day"`
	Writer string    `json:"writer"`
	Number int64     `json:"number"`
}

// replays restarts those that run, because they may have read the user's checks.
func (e *erasing) replays(ctx context.Context, _ string) (rows int64, next string, err error) {
	if err := e.RestartReplays(ctx, e.tenant); err != nil {
		return 0, "", err
	}
	rows, err = e.EraseFromReplays(ctx, e.tenant, e.user)
	return rows, "", err
}

// audit walks through the whole log, because entries about overrides and buckets name users inside.
func (e *erasing) audit(ctx context.Context, at string) (rows int64, next string, err error) {
	after, upTo, err := e.after(ctx, at, e.AuditPiece)
	if err != nil || upTo == 0 {
		return 0, "", err
	}
	rows, err = e.EraseFromAudit(ctx, dbsqlc.EraseFromAuditParams{
		TenantID: int64(e.tenant), UserID: e.user, Alias: e.alias, After: after, UpTo: upTo,
	})
	return rows, strconv.FormatInt(upTo, 10), err
}

func (e *erasing) exports(ctx context.Context, _ string) (rows int64, next string, err error) {
	ids, err := e.LockExports(ctx, e.tenant) // no piece is written meanwhile
	if err != nil {
		return 0, "", err
	}
	quoted, err := json.Marshal(e.user)
	if err != nil {
		return 0, "", err
	}
	if rows, err = e.EraseExports(ctx, e.tenant, string(quoted)); err != nil {
		return 0, "", err
	}
	if err := e.DropExportChunks(ctx, e.tenant, ids); err != nil {
		return 0, "", err
	}
	return rows, "", e.RestartExports(ctx, dbsqlc.RestartExportsParams{
		TenantID: e.tenant, ExportIds: ids, AtMost: exportRestarts,
		Error: "Users of the tenant were erased again and again meanwhile. Export again.",
	})
}

// months marks the user as erased, so that no settlement counts the user again.
func (e *erasing) months(ctx context.Context, _ string) (rows int64, next string, err error) {
	if err := e.checkpoints(ctx); err != nil {
		return 0, "", err
	}
	rows, err = e.EraseUserMonths(ctx, e.tenant, e.user)
	return rows, "", err
}

func (e *erasing) buckets(ctx context.Context, _ string) (rows int64, next string, err error) {
	return e.filled, "", e.checkpoints(ctx)
}

func (e *erasing) checkpoints(ctx context.Context) error {
	if err := e.HoldCheckpoints(ctx); err != nil {
		return err
	}
	return e.EraseCheckpoints(ctx, e.tenant, []byte(e.user))
}

func (e *erasing) after(ctx context.Context, at string,
	piece func(context.Context, rules.TenantID, int64, int32) (int64, error),
) (after, upTo int64, err error) {
	if at != "" {
		if after, err = strconv.ParseInt(at, 10, 64); err != nil {
			return 0, 0, err
		}
	}
	upTo, err = piece(ctx, e.tenant, after, e.atMost)
	return after, upTo, err
}

func erasureFromRow(row dbsqlc.UserErasure, next time.Time) (rules.Erasure, error) {
	var begun []begunStep
	if err := json.Unmarshal(row.Steps, &begun); err != nil {
		return rules.Erasure{}, fmt.Errorf("read the steps of erasure %d: %w", row.ErasureID, err)
	}
	for i := range erasureSteps {
		if !slices.ContainsFunc(begun, func(b begunStep) bool { return b.Name == erasureSteps[i].name }) {
			begun = append(begun, begunStep{Name: erasureSteps[i].name})
		}
	}
	return rules.Erasure{
		ID: row.ReceiptID, RequestedAt: row.RequestedAt.UTC(), FinishedAt: orZero(row.FinishedAt),
		Error: row.Error, NextTryAt: next,
		Steps: each(begun, func(b begunStep) rules.ErasureStep {
			return rules.ErasureStep{Name: b.Name, Rows: b.Rows, FinishedAt: orZero(b.End)}
		}),
		Rules: each(row.Rules, func(id int64) rules.RuleID { return rules.RuleID(id) }),
	}, nil
}

// CountsOfUser returns how often the user's buckets were denied in the first day with counts since a time, and when the
// next day begins, or zero.
func (s *Store) CountsOfUser(ctx context.Context, tenant rules.TenantID, userID string, since time.Time) (
	counts []rules.SubjectCount, next time.Time, err error,
) {
	q := s.queriesFor(classLoad, only(tenant))
	first, err := q.CountsPiece(ctx, tenant, since, 1)
	if err != nil || first.Unix() == 0 {
		return nil, next, wrap(err, "read the counts of a user")
	}
	next = midnight(first).AddDate(0, 0, 1)
	rows, err := q.CountedSubjectsWith(ctx, dbsqlc.CountedSubjectsWithParams{
		TenantID: tenant, Since: first, Until: next, UserID: userID,
	})
	if err != nil {
		return nil, next, wrap(err, "read the counts of a user")
	}
	for _, row := range rows {
		if isSubjectOf(row.KeyPattern, row.Subject, userID) {
			counts = append(counts, rules.SubjectCount{
				Rule: row.RuleID, Subject: row.Subject, First: row.FirstAt.UTC(), Last: row.LastAt.UTC(),
				Denied: row.Denied,
			})
		}
	}
	return counts, next, nil
}

// AuditOfUser returns the entries that name a user among the next ones after an id, and the last id, or 0 at the end.
func (s *Store) AuditOfUser(ctx context.Context, tenant rules.TenantID, userID string, after auth.AuditID) (
	entries []auth.AuditEntry, last auth.AuditID, err error,
) {
	q := s.queriesFor(classHeavy, only(tenant))
	upTo, err := q.AuditPiece(ctx, tenant, int64(after), erasedPerPiece)
	if err != nil || upTo == 0 {
		return nil, 0, wrap(err, "read the audit entries about a user")
	}
	rows, err := q.AuditOfUser(ctx, dbsqlc.AuditOfUserParams{
		TenantID: tenant, UserID: userID, After: int64(after), UpTo: upTo,
	})
	return auditEntriesFromRows(rows), auth.AuditID(upTo), wrap(err, "read the audit entries about a user")
}

func isSubjectOf(pattern, subject, userID string) bool {
	parsed, err := rules.ParsePattern(pattern)
	return err == nil && parsed.HasStored(subject, userID)
}
