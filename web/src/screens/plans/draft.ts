import type { ProblemDocument } from '~/api/problem';
import type { MatrixCell, MatrixRow, Plan, Rule } from '~/api/types';
import type { Limit } from '~/domain/rate';

/** Where a cell is: one limit (pattern and name) for one plan, or for all plans. */
export interface Place {
  key_pattern: string;
  name: string;
  plan: string | null;
}

/** What is to become of a cell. `base` is the rule that the reader saw; null: the cell was empty. */
export interface Edit {
  place: Place;
  base: Rule | null;
  /** null: the rule is to be removed. */
  limit: Limit | null;
  /** Of a new rule: the one from which it takes all else than the limit. */
  like?: Rule;
}

/** What somebody typed into a cell that is no limit: it stays in the cell, and keeps the draft from being saved. */
export interface Unread {
  rate: string;
  burst: string;
  wrong: string;
}

/** The changes that were not saved yet, by cell. */
export type Draft = ReadonlyMap<string, Edit>;

export function cellId({ key_pattern, name, plan }: Place): string {
  return JSON.stringify([key_pattern, name, plan]);
}

export function rowId({ key_pattern, name }: { key_pattern: string; name: string }): string {
  return JSON.stringify([key_pattern, name]);
}

/** The rule of a cell, or null. */
export function ruleAt(row: MatrixRow, plan: string | null): Rule | null {
  return row.rules.find((rule) => rule.plan === plan) ?? null;
}

/**
 * The plans as tiers: by the rate of the limit that most of them have, the smallest first; those without
 * it at the end, by name.
 */
export function inTiers(plans: Plan[], rows: MatrixRow[]): Plan[] {
  const rates = (row: MatrixRow) =>
    row.rules.filter(({ plan, action, mode }) => plan !== null && action === 'limit' && mode === 'enforce');
  const [row] = rows.toSorted((a, b) => rates(b).length - rates(a).length);
  const rate = new Map(row && rates(row).map(({ plan, rate_per_second }) => [plan, rate_per_second]));
  const of = ({ name }: Plan) => rate.get(name) ?? Number.MAX_VALUE;
  return plans.toSorted((a, b) => of(a) - of(b) || a.name.localeCompare(b.name, 'en'));
}

export function sameLimit(a: Limit, b: Limit): boolean {
  return (
    a.rate_per_second === b.rate_per_second &&
    a.rate_unit === b.rate_unit &&
    a.burst_capacity === b.burst_capacity
  );
}

/** The draft with one cell's edit. An edit that changes nothing is none. */
export function edited(draft: Draft, edit: Edit): Draft {
  const next = new Map(draft);
  const same =
    edit.base === null ? edit.limit === null : edit.limit !== null && sameLimit(edit.base, edit.limit);
  if (same) next.delete(cellId(edit.place));
  else next.set(cellId(edit.place), edit);
  return next;
}

export function without(draft: Draft, id: string): Draft {
  const next = new Map(draft);
  next.delete(id);
  return next;
}

/** What the API is asked to save, in the draft's order, so that `/cells/3` is the fourth edit. */
export function cellsOf(draft: Draft): MatrixCell[] {
  return [...draft.values()].map(({ place: { key_pattern, name, plan }, base, limit, like }) => {
    if (base && !limit) return { rule_id: base.rule_id, version: base.version, remove: true };
    const values = {
      rate_per_second: limit?.rate_per_second,
      rate_unit: limit?.rate_unit,
      burst_capacity: limit?.burst_capacity,
    };
    return base
      ? { rule_id: base.rule_id, version: base.version, ...values }
      : { key_pattern, name, plan, ...values, ...(like && detailsOf(like)) };
  });
}

function detailsOf({ algorithm, failure_mode, description }: Rule) {
  return { algorithm, failure_mode, description };
}

/** What is wrong with which cell, by cell; what belongs to none is under ''. */
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

/** An edit whose cell is no longer what its author saw. */
export interface Clash {
  id: string;
  edit: Edit;
  /** What is saved there now. */
  now: Rule | null;
}

/** The edits that lost a race against what is saved now. */
export function clashes(draft: Draft, rows: MatrixRow[]): Clash[] {
  const saved = new Map(rows.flatMap((row) => row.rules.map((rule) => [cellId(rule), rule] as const)));
  return [...draft].flatMap(([id, edit]) => {
    const now = saved.get(id) ?? null;
    const same = now?.rule_id === edit.base?.rule_id && now?.version === edit.base?.version;
    return same ? [] : [{ id, edit, now }];
  });
}

/** The draft on top of what is saved now: the next save overwrites it. */
export function rebased(draft: Draft, lost: Clash[]): Draft {
  return lost.reduce<Draft>(
    (next, { id, edit, now }) => edited(without(next, id), { ...edit, base: now }),
    draft,
  );
}

/** The draft without the edits that lost. */
export function yielded(draft: Draft, lost: Clash[]): Draft {
  return lost.reduce<Draft>((next, { id }) => without(next, id), draft);
}
