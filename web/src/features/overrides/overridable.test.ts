import { expect, test } from 'vitest';
import { rule } from '../../../test/fake';
import { violation } from '../../../test/traffic';
import { denyingRule } from './overridable';

const rules = [rule({ rule_id: '1' }), rule({ rule_id: '2' }), rule({ rule_id: '3' })];
const denied = (rule_id: string, count: number, last_at: string, mode: 'enforce' | 'shadow' = 'enforce') =>
  violation({ rule_id, count, last_at, mode });

test.each([
  ['the one with the most denials, not the last', [denied('1', 1, '12:59'), denied('2', 400, '12:58')], '2'],
  ['of the last hour only', [denied('1', 1, '12:59'), denied('2', 400, '11:30')], '1'],
  ['no shadow rule', [denied('1', 50, '12:59', 'shadow'), denied('2', 1, '12:58')], '2'],
  ['none that is not offered', [denied('9', 50, '12:59'), denied('3', 1, '10:00')], '3'],
  ['none without denials', [], undefined],
])('the rule that denies a user is %s', (_, violations, wanted) => {
  const recent_violations = violations.map((one) => ({ ...one, last_at: `2026-11-20T${one.last_at}:00Z` }));
  expect(denyingRule(rules, { recent_violations })).toBe(wanted);
});
