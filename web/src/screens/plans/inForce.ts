import type { MatrixRow, Plan, Rule } from '~/api/types';
import { exactNumber } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { hasRate, type Limit, limitSentence, limitShort, rateShort, shapeOf } from '~/domain/rate';
import { cellId, type Draft, type Edit, edited, rowId, ruleAt } from './draft';

/**
 * The limit in force for one plan in one row, after the draft. All matching rules must allow a check, so the limit for
 * all plans applies beside a plan’s own, and the lower rate and the lower burst win.
 */
export type InForce =
  | { kind: 'own' }
  /** The plan has no enforced limit here, so that of all plans applies. */
  | { kind: 'inherited'; all: Limit }
  /** The plan's own limit is looser than that of all plans. */
  | { kind: 'held'; own: Limit; all: Limit }
  /** An edit made the plan's limit looser than that of all plans, so a save gives each plan a limit of its own. */
  | { kind: 'raised'; own: Limit; all: Limit }
  /** The rule for all plans always denies, or lets everything pass. */
  | { kind: 'block' | 'bypass' };

/** The rows as they are at a time by the server's clock, where rules that have ended are off. */
export function rowsAt(rows: MatrixRow[], now: number): MatrixRow[] {
  return rows.map((row) =>
    row.rules.some((rule) => hasExpired(rule, now))
      ? { ...row, rules: row.rules.map((rule) => (hasExpired(rule, now) ? { ...rule, is_active: false } : rule)) }
      : row,
  );
}

type Decides = Limit | 'block' | 'bypass' | null;

/** The decision of a cell by itself. */
function decides(row: MatrixRow, plan: string | null, draft: Draft): Decides {
  const rule = ruleAt(row, plan);
  const change = draft.get(cellId({ ...row, plan }));
  if (rule && (rule.mode === 'shadow' || !rule.is_active)) return null;
  if (change) return change.limit;
  if (!rule) return null;
  return rule.action === 'limit' ? rule : rule.action;
}

function isLimit(decision: Decides): decision is Limit {
  return decision !== null && typeof decision === 'object';
}

export function inForce(row: MatrixRow, plan: string | null, draft: Draft, plans: Plan[]): InForce {
  if (plan === null) return { kind: 'own' };
  const all = decides(row, null, draft);
  const own = decides(row, plan, draft);
  // A bypass decides before a block, and both before limits.
  if (own === 'bypass' || all === null) return { kind: 'own' };
  if (!isLimit(all)) return { kind: all };
  if (own === 'block') return { kind: 'own' };
  if (own === null) return { kind: 'inherited', all };
  if (!isLooser(own, all)) return { kind: 'own' };
  const isRaised = draft.has(cellId({ ...row, plan })) && isSeparable(row, all, draft, plans);
  return { kind: isRaised ? 'raised' : 'held', own, all };
}

/** Whether edited plans can leave the limit for all plans, so that no other plan's limit in force changes. */
function isSeparable(row: MatrixRow, all: Limit, draft: Draft, plans: Plan[]): boolean {
  if (draft.has(cellId({ ...row, plan: null })) || splitProblem(row, plans) || isShared(row)) return false;
  if (!plans.some(({ is_default }) => is_default)) return false; // users without a plan would have no limit
  return plans.every(({ name }) => {
    const own = decides(row, name, draft);
    return !isLimit(own) || (sameKind(own, all) && (draft.has(cellId({ ...row, plan: name })) || !isLooser(own, all)));
  });
}

function isLooser(own: Limit, all: Limit): boolean {
  return sameKind(own, all) && (own.rate_per_second > all.rate_per_second || own.burst_capacity > all.burst_capacity);
}

function sameKind(a: Limit, b: Limit): boolean {
  return (hasRate(a.algorithm) && hasRate(b.algorithm)) || JSON.stringify(shapeOf(a)) === JSON.stringify(shapeOf(b));
}

/** The part of a looser limit that all plans lower: "6/min, burst 6", "burst 6". */
export function heldTo(own: Limit, all: Limit): string {
  if (!hasRate(all.algorithm)) return limitShort(all);
  const parts = [
    own.rate_per_second > all.rate_per_second && rateShort(all),
    own.burst_capacity > all.burst_capacity && `burst ${exactNumber(all.burst_capacity)}`,
  ];
  return parts.filter(Boolean).join(', ');
}

export interface HeldRow {
  row: MatrixRow;
  all: Limit;
  plans: { name: string; own: Limit }[];
}

function touchedRows(rows: MatrixRow[], draft: Draft): MatrixRow[] {
  const touched = new Set([...draft.values()].map(({ place }) => rowId(place)));
  return rows.filter((row) => touched.has(rowId(row)));
}

/** The draft to save: a limit for all plans is split into one per plan where a plan was raised above it. */
export function asSaved(draft: Draft, rows: MatrixRow[], plans: Plan[]): Draft {
  const isRaised = (row: MatrixRow) => plans.some(({ name }) => inForce(row, name, draft, plans).kind === 'raised');
  return touchedRows(rows, draft).reduce((next, row) => {
    if (!isRaised(row)) return next;
    const like = ruleAt(row, null) ?? undefined; // new rules come from it, with all of its other fields
    const ofRow = [...split(next, row, plans)].map(([id, edit]): [string, Edit] =>
      rowId(edit.place) === rowId(row) && !edit.base ? [id, { like, ...edit }] : [id, edit],
    );
    return new Map(ofRow);
  }, draft);
}

export function heldRows(rows: MatrixRow[], plans: Plan[], draft: Draft): HeldRow[] {
  return touchedRows(rows, draft).flatMap((row) => {
    const isTouched = (plan: string | null) => draft.has(cellId({ ...row, plan }));
    const found = plans.flatMap(({ name }) => {
      const now = inForce(row, name, draft, plans);
      return now.kind === 'held' && (isTouched(name) || isTouched(null)) ? [{ name, ...now }] : [];
    });
    return found[0] ? [{ row, all: found[0].all, plans: found }] : [];
  });
}

/** Whether users of several plans use one bucket. A user is on one plan. */
function isShared({ key_pattern }: MatrixRow): boolean {
  return !/(^|:)user:/.test(key_pattern);
}

export function splitProblem(row: MatrixRow, plans: Plan[]): string | null {
  const idle = plans.filter(({ name }) => {
    const rule = ruleAt(row, name);
    return rule && (rule.mode === 'shadow' || !rule.is_active);
  });
  if (idle.length === 0) return null;
  const names = idle.map(({ name }) => name).join(', ');
  return `On ${names}, a rule is off or in shadow mode. Nothing would be enforced there.`;
}

export function removalNotes(row: MatrixRow, plans: Plan[], draft: Draft): string[] {
  const all = ruleAt(row, null);
  const own = plans.map(({ name }) => ({ name, limit: decides(row, name, draft) }));
  const bare = own.flatMap(({ name, limit }) => (limit === null ? [name] : []));
  const notes: string[] = [];
  if (bare.length > 0) notes.push(`Nothing of it is left on ${bare.join(', ')}.`);
  if (!plans.some(({ is_default }) => is_default)) {
    notes.push('This tenant has no default plan: users without an assigned plan are no longer limited by it.');
  }
  notes.push('Plans that are created later begin without it.');
  const limits = own.flatMap(({ limit }) => (isLimit(limit) ? [limit] : []));
  if (all?.action === 'limit' && isShared(row) && limits.length > 1 && limits.every((one) => sameKind(one, all))) {
    const sum = (of: (limit: Limit) => number) => limits.reduce((total, limit) => total + of(limit), 0);
    const together = {
      ...all,
      rate_per_second: sum((limit) => limit.rate_per_second),
      burst_capacity: sum((limit) => limit.burst_capacity),
    };
    notes.push(
      `All plans share ${limitSentence(all)} now. With limits of their own they reach ` +
        `${limitSentence(together)} together.`,
    );
  }
  return notes;
}

export function split(draft: Draft, row: MatrixRow, plans: Plan[]): Draft {
  const all = decides(row, null, draft);
  if (!isLimit(all)) return draft;
  const { key_pattern, name } = row;
  const { rate_per_second, rate_unit, burst_capacity } = all;
  const limit = { rate_per_second, rate_unit, burst_capacity, meter: all.meter, ...shapeOf(all) };
  const like = ruleAt(row, null) ?? undefined;
  let next = draft;
  for (const plan of plans) {
    if (decides(row, plan.name, draft) !== null) continue;
    const place = { key_pattern, name, plan: plan.name };
    next = edited(next, { place, base: baseOf(next, row, plan.name), limit, like });
  }
  const place = { key_pattern, name, plan: null };
  return edited(next, { place, base: baseOf(next, row, null), limit: null });
}

function baseOf(draft: Draft, row: MatrixRow, plan: string | null): Rule | null {
  const change = draft.get(cellId({ ...row, plan }));
  return change ? change.base : ruleAt(row, plan);
}

export function heldSentence({ all, plans }: HeldRow): string {
  const held = plans.map(({ name, own }) => `${name} is limited to ${heldTo(own, all)}`).join('; ');
  return `${held}. The limit for all plans, ${limitSentence(all)}, applies too.`;
}
