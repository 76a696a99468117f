import type { ProblemDocument } from '~/api/problem';
import type { MatrixCell, MatrixRow, NewScheduledRule, Rule, RulePatch } from '~/api/types';
import { requests } from '~/domain/meter';
import { hasRate, type Limit, sameLimit, shapeOf } from '~/domain/rate';

export type Row = MatrixRow & { meter?: string };

export interface Place {
  key_pattern: string;
  name: string;
  plan: string | null;
}

/** An unsaved edit of a cell. `base` is the rule that the reader saw; null: the cell was empty. */
export interface Edit {
  place: Place;
  base: Rule | null;
  limit: Limit | null;
  /** For a new rule: the rule that its other fields are copied from. */
  like?: Rule;
  charge?: Rule['charge'];
  shadow?: boolean;
}

/** Invalid text in a cell, which stays there; the draft cannot be saved. */
export interface Unread {
  rate: string;
  burst: string;
  wrong: string;
}

export type Draft = ReadonlyMap<string, Edit>;

export function byMeter(rows: Row[]): Row[] {
  const place = ({ meter }: Row) => (meter === requests ? '' : (meter ?? ''));
  return rows
    .map((row) => (row.meter ? row : { ...row, meter: row.rules[0]?.meter ?? requests }))
    .sort((a, b) => (place(a) < place(b) ? -1 : place(a) > place(b) ? 1 : 0));
}

export function cellId({ key_pattern, name, plan }: Place): string {
  return JSON.stringify([key_pattern, name, plan]);
}

export function rowId({ key_pattern, name }: { key_pattern: string; name: string }): string {
  return JSON.stringify([key_pattern, name]);
}

export function candidatesOf(rows: MatrixRow[]): Map<string, Rule> {
  const live = new Set(rows.flatMap(({ rules }) => rules.map(({ rule_id }) => rule_id)));
  return new Map(
    rows.flatMap(({ rules }) =>
      rules.flatMap((rule) =>
        rule.candidate_for !== null && live.has(rule.candidate_for) ? [[rule.candidate_for, rule]] : [],
      ),
    ),
  );
}

export function withoutCandidates(rows: MatrixRow[], candidates: Map<string, Rule>): MatrixRow[] {
  const shown = new Set([...candidates.values()].map(({ rule_id }) => rule_id));
  return rows.filter(({ rules }) => rules.length === 0 || rules.some(({ rule_id }) => !shown.has(rule_id)));
}

export function ruleAt(row: MatrixRow, plan: string | null): Rule | null {
  return row.rules.find((rule) => rule.plan === plan) ?? null;
}

export function edited(draft: Draft, edit: Edit): Draft {
  const next = new Map(draft);
  if (same(edit.base, edit.limit)) next.delete(cellId(edit.place));
  else next.set(cellId(edit.place), edit);
  return next;
}

/** The cells to send, in the order of the draft, so that `/cells/3` is the fourth edit. */
export function cellsOf(draft: Draft): MatrixCell[] {
  return [...draft.values()].map(({ place: { key_pattern, name, plan }, base, limit, like, charge, shadow }) => {
    if (base && !limit) return { rule_id: base.rule_id, version: base.version, remove: true };
    const rate = limit && hasRate(limit.algorithm) ? limit.rate_per_second : undefined;
    const values = { rate_per_second: rate, rate_unit: limit?.rate_unit, burst_capacity: limit?.burst_capacity };
    return base
      ? { rule_id: base.rule_id, version: base.version, ...values }
      : {
          key_pattern,
          name,
          plan,
          ...values,
          ...(limit && partsOf(limit)),
          ...(limit?.meter && limit.meter !== requests && { meter: limit.meter }),
          ...(charge === 'after' && { charge }),
          ...(like && detailsOf(like)),
          ...(shadow && { mode: 'shadow' as const }),
        };
  });
}

/** The changes that can be scheduled, which are those of rules that exist, and the number of others. */
export function toSchedule(draft: Draft): { changes: NewScheduledRule[]; others: number } {
  const cells = cellsOf(draft);
  const changes = cells.flatMap(({ rule_id, version, remove, ...change }) =>
    rule_id && version && !remove ? [{ rule_id, version, change: change as RulePatch }] : [],
  );
  return { changes, others: cells.length - changes.length };
}

export function scheduleProblem(draft: Draft): string | null {
  return toSchedule(draft).others === 0 ? null : 'A change that adds or removes a rule cannot be scheduled.';
}

function partsOf(limit: Limit) {
  return Object.fromEntries(
    Object.entries(shapeOf(limit)).filter(([, value]) => value !== null && value !== undefined),
  );
}

type Copied = Exclude<
  keyof MatrixCell,
  'rule_id' | 'version' | 'remove' | 'rate' | keyof Place | Exclude<keyof Limit, 'meter'>
>;

/** The fields that a new rule copies from the one that it is like, beside its limit: all that a cell can carry. */
const copied = {
  meter: true,
  charge: true,
  notify_at: true,
  adapt: true,
  mode: true,
  action: true,
  failure_mode: true,
  lease: true,
  is_active: true,
  expires_at: true,
  description: true,
} satisfies Record<Copied, true>;

function detailsOf(like: Rule): Partial<MatrixCell> {
  const isUsual = (value: unknown) =>
    [null, 'auto', requests, 'before'].some((usual) => usual === value) || (Array.isArray(value) && value.length === 0);
  const entries = (Object.keys(copied) as Copied[]).map((field) => [field, like[field]] as const);
  return { algorithm: like.algorithm, ...Object.fromEntries(entries.filter(([, value]) => !isUsual(value))) };
}

/** The limit that new cells of a row are like, so that one row is one kind of limit; null for a row without any. */
export function modelOf(row: MatrixRow): Rule | null {
  return row.rules.find(({ action }) => action === 'limit') ?? null;
}

export function errorsByCell(draft: Draft, document: ProblemDocument): Map<string, string> {
  const ids = [...draft.keys()];
  const found = new Map<string, string>();
  for (const { pointer, detail } of document.errors ?? []) {
    const [, index, field] = /^\/cells\/(\d+)(?:\/(.*))?$/.exec(pointer) ?? [];
    const id = (index !== undefined && ids[Number(index)]) || '';
    const words =
      field === 'burst_capacity'
        ? `The burst ${detail}`
        : field
          ? `The ${field.replaceAll('_', ' ')} ${detail}`
          : detail;
    found.set(id, found.has(id) ? `${found.get(id)}. ${words}` : words);
  }
  return found;
}

/** An edit of a cell whose limit somebody else changed since, to another one. */
export interface Clash {
  id: string;
  edit: Edit;
  now: Rule | null;
}

/**
 * The draft over the saved version: each edit changes its limit only, so that other people's edits of other fields
 * stay. Clashes are edits of limits that others changed; in the draft they are the reader's.
 */
export function merged(draft: Draft, rows: MatrixRow[]): { draft: Draft; clashes: Clash[] } {
  const saved = new Map(rows.flatMap((row) => row.rules.map((rule) => [cellId(rule), rule] as const)));
  const clashes: Clash[] = [];
  let next: Draft = new Map();
  for (const [id, edit] of draft) {
    const now = saved.get(id) ?? null;
    if (!same(edit.base, now) && !same(edit.limit, now)) clashes.push({ id, edit, now });
    const like = edit.like ?? edit.base ?? undefined; // of a rule that was removed, its other fields come back
    next = edited(next, { ...edit, base: now, like });
  }
  return { draft: next, clashes };
}

function same(a: Limit | null, b: Limit | null): boolean {
  return a === null || b === null ? a === b : sameLimit(a, b);
}

export function yielded(draft: Draft, lost: Clash[]): Draft {
  return new Map([...draft].filter(([id]) => !lost.some((clash) => clash.id === id)));
}
