import { expect, test } from 'vitest';
import { rule } from '../../../test/fake';
import { withSaved } from './queries';

const all = rule({ rule_id: '1', plan: null });
const free = rule({ rule_id: '2', plan: 'free' });
const pro = rule({ rule_id: '3', plan: 'pro' });
const row = (...rules: ReturnType<typeof rule>[]) => {
  const [{ key_pattern, name, scope }] = rules as [ReturnType<typeof rule>];
  return { key_pattern, name, scope, rules };
};
const global = rule({ rule_id: '9', key_pattern: 'global', scope: 'global' });

test('what a save changed, made and removed is in the matrix, in the order of the server', () => {
  const faster = { ...free, rate_per_second: 99 };
  const rows = [row(all, free, pro)];
  const changes = [
    { change: 'update' as const, before: free, after: faster },
    { change: 'remove' as const, before: all },
    { change: 'create' as const, after: global },
  ];
  expect(withSaved({ rows, etag: '"7"' }, changes, '"8"')).toEqual({
    rows: [row(global), row(faster, pro)],
    etag: '"8"',
  });
  expect(withSaved({ rows: [row(free)], etag: '"7"' }, [{ change: 'remove', before: free }], '').rows).toEqual([]);
});

test('a part of the matrix stays a part after a save', () => {
  const part = { rows: [row(free)], etag: '', isPart: true };
  expect(withSaved(part, [{ change: 'create', after: pro }], '"8"')).toEqual({ ...part, rows: [row(free, pro)] });
});

test('the matrix is not said to be as new as a save if others have saved before it', () => {
  for (const etag of ['"9"', '', '"7"']) expect(withSaved({ rows: [], etag: '"7"' }, [], etag).etag).toBe('');
  expect(withSaved({ rows: [], etag: '' }, [], '"1"').etag).toBe('');
  expect(withSaved({ rows: [], etag: 'W/"7"' }, [], 'W/"8"').etag).toBe('W/"8"');
});
