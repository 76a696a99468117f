import { describe, expect, test } from 'vitest';
import type { MatrixRow, Rule } from '~/api/types';
import { plan, rule } from '../../../test/fake';
import { cellId, cellsOf, type Draft, edited } from './draft';
import { asSaved, heldRows, heldTo, inForce, removalNotes, split, splitProblem } from './inForce';

const none: Draft = new Map();
const perMinute = (plan: string | null, number: number, more: Partial<Rule> = {}) =>
  rule({
    plan,
    rate_per_second: number / 60,
    rate_unit: 'minute',
    burst_capacity: number,
    rule_id: plan === null ? '1' : '2',
    ...more,
  });
const row = (...rules: Rule[]): MatrixRow => ({
  key_pattern: 'user:{user_id}',
  name: '',
  scope: 'user',
  rules,
});
const kind = (rules: Rule[], plan: string | null = 'pro') => inForce(row(...rules), plan, none, []).kind;

test('the limit of all plans holds where a plan has none, or a looser one', () => {
  const all = perMinute(null, 6);
  expect(kind([all])).toBe('inherited');
  expect(kind([all, perMinute('pro', 60)])).toBe('held');
  expect(kind([all, perMinute('pro', 6)])).toBe('own');
  expect(kind([all, perMinute('pro', 3)])).toBe('own');
  expect(kind([all], null)).toBe('own');
  expect(kind([perMinute('pro', 60)])).toBe('own');
});

test('rules that are off or in shadow mode hold nobody, and a block or bypass holds everybody', () => {
  const pro = perMinute('pro', 60);
  expect(kind([perMinute(null, 6, { mode: 'shadow' }), pro])).toBe('own');
  expect(kind([perMinute(null, 6, { is_active: false }), pro])).toBe('own');
  expect(kind([perMinute(null, 6), perMinute('pro', 60, { mode: 'shadow' })])).toBe('inherited');
  expect(kind([perMinute(null, 0, { action: 'block' }), pro])).toBe('block');
  expect(kind([perMinute(null, 0, { action: 'bypass' }), pro])).toBe('bypass');
  expect(kind([perMinute(null, 0, { action: 'block' }), perMinute('pro', 0, { action: 'bypass' })])).toBe('own');
});

test('what a looser limit is limited to is the lower of each', () => {
  const all = perMinute(null, 6);
  expect(heldTo(perMinute('pro', 60), all)).toBe('6/min, burst 6');
  expect(heldTo(perMinute('pro', 60, { burst_capacity: 2 }), all)).toBe('6/min');
  expect(heldTo(perMinute('pro', 3, { burst_capacity: 60 }), all)).toBe('burst 6');
});

test('a draft is judged before it is saved, and only the rows that it touches are named', () => {
  const saved = [row(perMinute(null, 6))];
  const plans = [plan('free'), plan('pro')];
  const place = { key_pattern: 'user:{user_id}', name: '', plan: 'pro' };
  const limit = { rate_per_second: 1, rate_unit: 'minute' as const, burst_capacity: 60 };
  const draft = edited(none, { place, base: null, limit });
  expect(heldRows(saved, plans, none)).toEqual([]);
  expect(heldRows(saved, plans, draft).map(({ plans }) => plans.map(({ name }) => name))).toEqual([['pro']]);
});

test('one press makes the limit of all plans one for each plan, with all else it says, and removes it', () => {
  const all = perMinute(null, 6, {
    failure_mode: 'closed',
    description: 'why',
    lease: 'never',
    adapt: { backend: 'search', floor_percent: 20, p99_ms: 300, error_percent: null },
    expires_at: '2027-01-01T00:00:00Z',
  });
  const it = row(all, perMinute('pro', 60));
  const draft = split(none, it, [plan('free'), plan('gold'), plan('pro')]);
  const limit = { rate_per_second: 0.1, rate_unit: 'minute', burst_capacity: 6 };
  const details = {
    algorithm: 'token_bucket',
    mode: 'enforce',
    action: 'limit',
    is_active: true,
    failure_mode: 'closed',
    description: 'why',
    lease: 'never',
    adapt: { backend: 'search', floor_percent: 20, p99_ms: 300, error_percent: null },
    expires_at: '2027-01-01T00:00:00Z',
  };
  const place = { key_pattern: 'user:{user_id}', name: '' };
  expect(cellsOf(draft)).toEqual([
    { ...place, plan: 'free', ...limit, ...details },
    { ...place, plan: 'gold', ...limit, ...details },
    { rule_id: '1', version: 3, remove: true },
  ]);
  expect(inForce(it, 'pro', draft, []).kind).toBe('own');
});

test('a limit of all plans that was never saved leaves no trace', () => {
  const place = { key_pattern: 'user:{user_id}', name: '', plan: null };
  const limit = { rate_per_second: 0.1, rate_unit: 'minute' as const, burst_capacity: 6 };
  const draft = split(edited(none, { place, base: null, limit }), row(), [plan('free')]);
  expect([...draft.keys()]).toEqual([cellId({ ...place, plan: 'free' })]);
});

test('a plan whose own rule is in shadow mode keeps the limit of all plans from being split', () => {
  const it = row(perMinute(null, 6), perMinute('pro', 60, { mode: 'shadow' }));
  expect(splitProblem(it, [plan('free'), plan('pro')])).toMatch(/On pro, a rule is off/);
  expect(splitProblem(row(perMinute(null, 6)), [plan('free'), plan('pro')])).toBeNull();
});

test('a split of a shared limit says what all plans together can reach then', () => {
  const shared = { ...row(perMinute(null, 60)), key_pattern: 'endpoint:/a', scope: 'endpoint' as const };
  const plans = [plan('free', { is_default: true }), plan('pro')];
  expect(removalNotes(shared, plans, split(none, shared, plans))).toEqual([
    'Plans that are created later begin without it.',
    'All plans share 60 per minute, bursts to 60 now. With limits of their own they reach ' +
      '120 per minute, bursts to 120 together.',
  ]);
  const users = row(perMinute(null, 60));
  expect(removalNotes(users, plans, split(none, users, plans))).toHaveLength(1);
});

test('a removal of the limit of all plans says which plans have none then, and who has no plan', () => {
  const it = row(perMinute(null, 6), perMinute('pro', 60));
  const draft = edited(none, { place: { ...it, plan: null }, base: it.rules[0] ?? null, limit: null });
  expect(removalNotes(it, [plan('free'), plan('pro')], draft).slice(0, 2)).toEqual([
    'Nothing of it is left on free.',
    'This tenant has no default plan: users without an assigned plan are no longer limited by it.',
  ]);
});

describe('a plan that is raised above the limit for all plans', () => {
  const all = perMinute(null, 6);
  const plans = [plan('free', { is_default: true }), plan('gold'), plan('pro')];
  const raised = (it: MatrixRow, name = 'pro') => {
    const place = { key_pattern: it.key_pattern, name: '', plan: name };
    const base = it.rules.find((one) => one.plan === name) ?? null;
    return edited(none, { place, base, limit: { rate_per_second: 1, rate_unit: 'minute', burst_capacity: 60 } });
  };

  test('is one change, whose save gives each other plan what it has', () => {
    const it = row(all, perMinute('gold', 3, { rule_id: '4' }));
    const draft = raised(it);
    expect(inForce(it, 'pro', draft, plans).kind).toBe('raised');
    expect(inForce(it, 'free', draft, plans).kind).toBe('inherited');
    expect(heldRows([it], plans, draft)).toEqual([]);
    expect(draft.size).toBe(1);
    expect(cellsOf(asSaved(draft, [it], plans))).toMatchObject([
      { plan: 'pro', rate_per_second: 1, burst_capacity: 60 },
      { plan: 'free', rate_per_second: 0.1, burst_capacity: 6 },
      { rule_id: '1', remove: true },
    ]);
  });

  test.each<[string, MatrixRow, typeof plans]>([
    ['without a default plan, as users without a plan would have no limit', row(all), [plan('free'), plan('pro')]],
    ['beside another plan that the limit binds too', row(all, perMinute('gold', 60, { rule_id: '4' })), plans],
    ['beside a plan whose rule is off', row(all, perMinute('gold', 6, { rule_id: '4', is_active: false })), plans],
    ['where all plans share one bucket', { ...row(all), key_pattern: 'endpoint:/a', scope: 'endpoint' }, plans],
  ])('stays limited %s', (_, it, plans) => {
    const draft = raised(it);
    expect(inForce(it, 'pro', draft, plans).kind).toBe('held');
    expect(asSaved(draft, [it], plans)).toBe(draft);
    expect(heldRows([it], plans, draft)).toHaveLength(1);
  });

  test('stays limited if the limit for all plans is edited too', () => {
    const it = row(all);
    const place = { key_pattern: it.key_pattern, name: '', plan: null };
    const draft = edited(raised(it), { place, base: all, limit: { ...all, burst_capacity: 5 } });
    expect(inForce(it, 'pro', draft, plans).kind).toBe('held');
  });
});
