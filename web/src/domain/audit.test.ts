import { expect, test } from 'vitest';
import type { AuditEntry } from '~/api/types';
import { auditEntry } from '../../test/fake';
import { actorOf } from './actor';
import { adaptText } from './adapt';
import { causeOf, changesOf, changeText, objectOf, revertable, verbOf } from './audit';
import { permissions } from './roles';

const raised = auditEntry({
  before: {
    key_pattern: 'user:{user_id}',
    plan: 'free',
    rate_per_second: 10,
    rate_unit: 'second',
    version: 1,
  },
  after: {
    key_pattern: 'user:{user_id}',
    plan: 'free',
    rate_per_second: 0.5,
    rate_unit: 'minute',
    version: 2,
  },
});

test('a change shows the values that differ, as people say them, and no bookkeeping', () => {
  expect(changesOf(raised)).toEqual([{ field: 'Rate', before: '10 per second', after: '30 per minute' }]);
});

test('the fields of a limit are said as on the rule itself, also those that nobody had chosen', () => {
  const adapt = { backend: 'search', floor_percent: 20, p99_ms: 300, error_percent: null };
  const changed = auditEntry({
    before: { algorithm: 'token_bucket' },
    after: { algorithm: 'token_bucket', refill_interval: '10s', adapt, lease: 'never' },
  });
  expect(changesOf(changed)).toEqual([
    { field: 'Leases', before: 'When busy', after: 'Never' },
    { field: 'Refill interval', before: '–', after: '10s' },
    { field: 'Adapts to', before: '–', after: adaptText(adapt) },
  ]);
});

test('values are said in the words of the editors', () => {
  const changed = auditEntry({
    before: { algorithm: 'token_bucket', mode: 'shadow', action: 'limit', failure_mode: 'open', charge: 'before' },
    after: { algorithm: 'fixed_window', mode: 'enforce', action: 'block', failure_mode: null, charge: 'before' },
  });
  expect(changesOf(changed).map(changeText)).toEqual([
    'Algorithm Token bucket → Fixed window, quota',
    'Mode Shadow → Enforced',
    'Action Limited → Always denied',
    'When Redis is unavailable Allow requests → –',
  ]);
});

test('a creation shows the values that it has, and none before', () => {
  const made = auditEntry({ action: 'create', before: null, after: { name: 'pro', plan: null, is_active: true } });
  expect(changesOf(made)).toEqual([
    { field: 'Name', before: null, after: 'pro' },
    { field: 'State', before: null, after: 'on' },
  ]);
});

test.each([
  [{ kind: 'rule', id: '12' }, { key_pattern: 'global', name: 'daily', plan: null }, 'rule All requests · daily'],
  [{ kind: 'override', id: '12:a:b' }, {}, 'the override of user a:b on rule 12'],
  [{ kind: 'user', id: '42' }, {}, 'the plan of user 42'],
  [{ kind: 'api_key', id: 'k1' }, { name: 'gateway' }, 'API key gateway'],
  [{ kind: 'tenant', id: 'acme' }, {}, 'the tenant'],
] as const)('the object %o is called by its name', (object, after, name) => {
  expect(objectOf(auditEntry({ object, after }))).toBe(name);
});

test('members and rules are called by their names while there are some', () => {
  const names = {
    member: (id: string) => (id === '1' ? 'ada@example.com' : undefined),
    rule: () => 'global',
  };
  const member = (id: string) => auditEntry({ object: { kind: 'member', id } });
  expect(objectOf(member('1'), names)).toBe('member ada@example.com');
  expect(objectOf(member('2'), names)).toBe('member 2');
  const override = auditEntry({ object: { kind: 'override', id: '12:42' } });
  expect(objectOf(override, names)).toBe('the override of user 42 on global');
});

test('what was done to a key or a tenant has its own word', () => {
  const key = { kind: 'api_key', id: 'k1' } as const;
  const moment = '2026-11-21T06:00:00Z';
  expect(verbOf(auditEntry({ object: key, before: { revoked_at: null }, after: { revoked_at: moment } }))).toBe(
    'revoked',
  );
  const tenant = { kind: 'tenant', id: 'acme' } as const;
  expect(verbOf(auditEntry({ object: tenant, before: { suspended_at: null }, after: { suspended_at: moment } }))).toBe(
    'suspended',
  );
  expect(verbOf(auditEntry({ object: tenant, before: { enforcement: 'on' }, after: { enforcement: 'shadow' } }))).toBe(
    'stopped enforcement of',
  );
  expect(verbOf(auditEntry({ object: tenant, before: { enforcement: 'shadow' }, after: { enforcement: 'on' } }))).toBe(
    'resumed enforcement of',
  );
  expect(verbOf(raised)).toBe('changed');
});

test('an undo and an enforced shadow rule are said as people say them', () => {
  const by = (act: string, more: Partial<AuditEntry> = {}) =>
    auditEntry({ ...more, actor: { kind: 'account', id: '1', name: 'Ada', act, request_id: '' } });
  expect(verbOf(by('revert 812'))).toBe('undid a change of');
  expect(verbOf(by('revert 812', { action: 'create', before: null }))).toBe('restored');
  expect(verbOf(by('promote'))).toBe('enforced');
  expect(causeOf(by('revert 812'))).toBe('undo of change 812');
  expect(causeOf(by('promote'))).toBe('enforcement of a shadow rule');
  expect(causeOf(by(''))).toBeNull();
});

test('an actor without a name is called by what there is', () => {
  const actor = { kind: 'api_key', id: 'k1', name: '', act: '', request_id: '' } as const;
  expect(actorOf(auditEntry({ actor }))).toBe('API key k1');
});

test.each<[string, Partial<AuditEntry>, 'viewer' | 'editor' | 'owner', boolean]>([
  ['a rule, by a viewer', {}, 'viewer', false],
  ['a rule, by an editor', {}, 'editor', true],
  ['the tenant, by an editor', { object: { kind: 'tenant', id: 'acme' } }, 'editor', false],
  ['the tenant, by an owner', { object: { kind: 'tenant', id: 'acme' } }, 'owner', true],
  ['its creation', { object: { kind: 'tenant', id: 'acme' }, before: null }, 'owner', false],
  ['a revocation', { object: { kind: 'api_key', id: 'k' }, after: { revoked_at: 'then' } }, 'owner', false],
  ['a member', { object: { kind: 'member', id: '1' } }, 'owner', false],
])('undoing %s', (_, entry, role, may) => {
  expect(revertable(auditEntry(entry), permissions(role))).toBe(may);
});
