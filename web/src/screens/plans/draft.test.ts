import { expect, test } from 'vitest';
import type { MatrixRow } from '~/api/types';
import { rule } from '../../../test/fake';
import {
  candidatesOf,
  cellId,
  cellsOf,
  type Draft,
  type Edit,
  edited,
  errorsByCell,
  merged,
  withoutCandidates,
  yielded,
} from './draft';

const base = rule();
const limit = { rate_per_second: 20, rate_unit: 'second' as const, burst_capacity: 100 };
const change: Edit = { place: base, base, limit };
const creation: Edit = { place: { key_pattern: 'global', name: '', plan: null }, base: null, limit };
const none: Draft = new Map();

const row = (...rules: MatrixRow['rules']): MatrixRow => ({
  key_pattern: 'user:{user_id}',
  name: '',
  scope: 'user',
  rules,
});

test('an edit back to what is saved is no edit', () => {
  const draft = edited(none, change);
  expect(draft.size).toBe(1);
  expect(edited(draft, { ...change, limit: { ...base } }).size).toBe(0);
  expect(edited(none, { ...creation, limit: null }).size).toBe(0);
});

test('a change, a creation and a removal are sent as the API wants them', () => {
  const draft = edited(edited(none, change), creation);
  expect(cellsOf(draft)).toEqual([
    { rule_id: '12', version: 3, ...limit },
    { key_pattern: 'global', name: '', plan: null, ...limit },
  ]);
  expect(cellsOf(edited(none, { ...change, limit: null }))).toEqual([{ rule_id: '12', version: 3, remove: true }]);
});

test('an error finds its cell', () => {
  const draft = edited(edited(none, change), creation);
  const errors = errorsByCell(draft, {
    type: '',
    title: '',
    status: 400,
    errors: [
      { pointer: '/cells/1/burst_capacity', detail: 'must be at most 7' },
      { pointer: '/dry_run', detail: 'must be a boolean' },
    ],
  });
  expect(errors.get(cellId(creation.place))).toBe('The burst must be at most 7');
  expect(errors.get('')).toBe('must be a boolean');
});

test('a limit that somebody changed, removed or filled meanwhile is a clash; what else they changed is not', () => {
  const draft = edited(edited(none, change), creation);
  const lost = (rows: MatrixRow[]) => merged(draft, rows).clashes.map(({ now }) => now);
  expect(lost([row(base)])).toEqual([]);
  expect(lost([row({ ...base, version: 4, description: 'theirs' })])).toEqual([]);
  expect(lost([row({ ...base, version: 4, ...change.limit })])).toEqual([]);
  const newer = { ...base, version: 4, burst_capacity: 60 };
  expect(lost([row(newer)])).toEqual([newer]);
  expect(lost([])).toEqual([null]);
  const filled = { ...row(rule({ key_pattern: 'global', plan: null })), key_pattern: 'global' };
  expect(merged(edited(none, creation), [filled]).clashes).toHaveLength(1);
});

test('mine over theirs saves on their version; theirs drops mine', () => {
  const draft = edited(edited(none, change), creation);
  const now = merged(draft, [row({ ...base, version: 4, burst_capacity: 60 })]);
  expect(cellsOf(now.draft).find(({ rule_id }) => rule_id === '12')?.version).toBe(4);
  expect(cellsOf(yielded(now.draft, now.clashes))).toEqual([{ key_pattern: 'global', name: '', plan: null, ...limit }]);
});

test('mine over a removal makes the rule anew, with its other fields', () => {
  const closed = { ...base, failure_mode: 'closed' as const, lease: 'never' as const };
  const cells = cellsOf(merged(edited(none, { ...change, base: closed }), []).draft);
  expect(cells[0]).toMatchObject({ key_pattern: 'user:{user_id}', plan: 'pro', burst_capacity: 100 });
  expect(cells[0]).toMatchObject({ failure_mode: 'closed', lease: 'never' });
  expect(cells[0]).not.toHaveProperty('rule_id');
});

test('a new rule can start in shadow mode', () => {
  expect(cellsOf(edited(none, { ...creation, shadow: true }))[0]).toMatchObject({ mode: 'shadow' });
});

test('a row of candidates is left to the cells of their live rules', () => {
  const candidate = rule({ rule_id: '13', name: 'candidate', candidate_for: '12' });
  const orphan = rule({ rule_id: '14', name: 'orphan', candidate_for: '99' });
  const rows = [row(base), { ...row(candidate), name: 'candidate' }, { ...row(orphan), name: 'orphan' }];
  const candidates = candidatesOf(rows);
  expect([...candidates]).toEqual([['12', candidate]]);
  expect(withoutCandidates(rows, candidates).map(({ name }) => name)).toEqual(['', 'orphan']);
});
