import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { auditEntry, key, page, problem, securityEvent, session, tenant } from '../../../test/fake';
import { open } from '../../../test/render';
import { acme, invitation, member, server } from '../../../test/settings';
import { scheduledChange } from '../../../test/traffic';

async function beginKey() {
  const { user } = open('/t/acme/settings/keys');
  await user.click(await screen.findByRole('button', { name: 'Create key' }));
  const dialog = await screen.findByRole('dialog');
  await user.type(within(dialog).getByLabelText('Name'), 'ci');
  return { user, dialog };
}

const made = (more: Parameters<typeof key>[0]) => () => ({
  status: 201,
  json: { key: key(more), secret: 'slk_k3Jx9mQ2_secret' },
});

test('a new key is shown once, with a line to paste, and neither Escape nor a click beside it loses it', async () => {
  const requests = server({
    [`POST ${acme}/api-keys`]: made({ name: 'ci' }),
  });
  const { user, dialog } = await beginKey();
  await user.click(within(dialog).getByLabelText('Custom'));
  await user.click(within(dialog).getByLabelText('Explain'));
  await user.click(within(dialog).getByRole('button', { name: 'Create key' }));
  expect(await screen.findByText('slk_k3Jx9mQ2_secret')).toBeDefined();
  expect(screen.getByRole('region', { name: 'curl' }).textContent).toContain('Bearer slk_k3Jx9mQ2_secret');
  const sent = requests.find(({ method }) => method === 'POST');
  expect(sent?.body).toEqual({
    name: 'ci',
    permissions: ['check', 'explain'],
    networks: [],
    expires_at: null,
  });
  await user.keyboard('{Escape}');
  expect(screen.getByText('slk_k3Jx9mQ2_secret')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Done' }));
  await waitFor(() => expect(screen.queryByText('slk_k3Jx9mQ2_secret')).toBeNull());
});

test('the dialog of a new key says when a check with it has arrived', async () => {
  let used = false;
  server({
    [`GET ${acme}/api-keys`]: () => ({
      json: page([key({ last_used_at: used ? '2026-11-26T17:00:00Z' : null })]),
    }),
    [`POST ${acme}/api-keys`]: made({ last_used_at: null }),
  });
  const { user, dialog: form } = await beginKey();
  await user.click(within(form).getByRole('button', { name: 'Create key' }));
  expect(await screen.findByText(/^Waiting for a check with this key/)).toBeDefined();
  used = true;
  expect(await screen.findByText('A check with this key has arrived.', {}, { timeout: 8_000 })).toBeDefined();
});

test('the form of a new key is gone when its secret is shown, however long the list takes', async () => {
  let reads = 0;
  server({
    [`GET ${acme}/api-keys`]: () => (reads++ === 0 ? { json: page([key()]) } : new Promise(() => {})),
    [`POST ${acme}/api-keys`]: made({ name: 'ci' }),
  });
  const { user, dialog: form } = await beginKey();
  await user.click(within(form).getByRole('button', { name: 'Create key' }));
  expect(await screen.findByText('slk_k3Jx9mQ2_secret')).toBeDefined();
  await waitFor(() => expect(screen.getAllByRole('dialog')).toHaveLength(1));
  await waitFor(() => expect(reads).toBeGreaterThan(1)); // a read that is given up is repeated
});

test('a key that cannot be made says so at its field, and keeps what was typed', async () => {
  server({
    [`POST ${acme}/api-keys`]: () =>
      problem(400, 'invalid-request', { errors: [{ pointer: '/name', detail: 'is too long' }] }),
  });
  const { user, dialog } = await beginKey();
  await user.click(within(dialog).getByRole('button', { name: 'Create key' }));
  expect(await within(dialog).findByText('is too long')).toBeDefined();
  expect(within(dialog).getByLabelText('Name')).toHaveProperty('value', 'ci');
});

test('rotating gives the old key its grace', async () => {
  const requests = server({
    [`POST ${acme}/api-keys/k3Jx9mQ2/rotate`]: () => ({
      status: 201,
      json: { key: key({ key_id: 'new4Jx9m' }), secret: 'slk_new_secret' },
    }),
  });
  const { user } = open('/t/acme/settings/keys');
  await user.click(await screen.findByRole('button', { name: 'Actions of gateway' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Rotate …' }));
  await user.selectOptions(await screen.findByLabelText('The old key expires'), '604800');
  await user.click(screen.getByRole('button', { name: 'Rotate key' }));
  expect(await screen.findByText('slk_new_secret')).toBeDefined();
  const sent = requests.find(({ path }) => path.endsWith('/rotate'));
  expect(sent?.body).toEqual({ grace_seconds: 604_800 });
  expect(sent?.headers.get('If-Match')).toBe('"9"');
});

test('a stale session signs in again to give access, and what was typed is sent once more', async () => {
  let fresh = false;
  const asked =
    <T,>(json: T, status = 200) =>
    () =>
      fresh ? { status, json, headers: { ETag: '"2"' } } : problem(403, 'fresh-proof-required');
  const requests = server({
    'POST /api/v1/session/confirm': () => {
      fresh = true;
      return { status: 204 };
    },
    [`POST ${acme}/api-keys`]: asked({ key: key({ name: 'ci' }), secret: 'slk_new_secret' }, 201),
    [`POST ${acme}/api-keys/k3Jx9mQ2/keep`]: asked(key()),
    [`GET ${acme}/api-keys`]: () => ({
      json: page([key({ creator_left: true, created_by: { kind: 'account', id: '7', name: 'gone@example.com' } })]),
    }),
    [`PATCH ${acme}/members/1`]: asked({ ...member, role: 'editor' }),
    [`POST ${acme}/invitations`]: asked({ invitation, token: '3q2-7wAB9x' }, 201),
  });
  const { user } = open('/t/acme/settings/keys');
  async function confirm(method: string, end: string) {
    await user.type(await screen.findByLabelText('Your password'), 'a password');
    await user.click(screen.getByRole('button', { name: 'Continue' }));
    const sent = () => requests.filter((one) => one.method === method && one.path.endsWith(end));
    await waitFor(() => expect(sent()).toHaveLength(2));
    expect(sent()[1]?.body).toEqual(sent()[0]?.body);
    await waitFor(() => expect(screen.queryByLabelText('Your password')).toBeNull());
    fresh = false;
  }
  await user.click(await screen.findByRole('button', { name: 'Create key' }));
  const form = await screen.findByRole('dialog');
  await user.type(within(form).getByLabelText('Name'), 'ci');
  await user.click(within(form).getByRole('button', { name: 'Create key' }));
  await confirm('POST', '/api-keys');
  expect(await screen.findByText('slk_new_secret')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Done' }));
  await user.click(await screen.findByRole('button', { name: 'Keep gateway' }));
  await confirm('POST', '/keep');
  await user.click(screen.getByRole('link', { name: 'Members' }));
  await user.click(await screen.findByRole('button', { name: 'Invite' }));
  await user.type(await screen.findByLabelText('E-mail'), 'grace@example.com');
  await user.click(screen.getByRole('button', { name: 'Create link' }));
  await confirm('POST', '/invitations');
  expect(await screen.findByText(/3q2-7wAB9x$/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Done' }));
  await user.selectOptions(await screen.findByLabelText('Role of ada@example.com'), 'editor');
  await user.click(await screen.findByRole('button', { name: 'Become an editor' }));
  await confirm('PATCH', '/members/1');
});

test('keys of people who left are revoked or kept, one by one', async () => {
  let kept: string | null = null;
  const left = {
    creator_left: true,
    created_by: { kind: 'account' as const, id: '7', name: 'gone@example.com' },
  };
  const requests = server({
    [`GET ${acme}/api-keys`]: () => ({
      json: page([
        key({ ...left, kept_at: kept }),
        key({ ...left, key_id: 'old4Jx9m', name: 'old', revoked_at: kept ?? '2026-11-21T06:00:00Z' }),
      ]),
    }),
    [`POST ${acme}/api-keys/k3Jx9mQ2/keep`]: () => {
      kept = '2026-11-21T06:00:00Z';
      return { json: key({ ...left, kept_at: kept }), headers: { ETag: '"10"' } };
    },
  });
  const { user } = open('/t/acme/settings/keys');
  expect(await screen.findByText(/1 key made by people who have left still works/)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Revoke gateway' }));
  await user.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Cancel' }));
  await user.click(await screen.findByRole('button', { name: 'Keep gateway' }));
  await waitFor(() => expect(screen.queryByText(/people who have left/)).toBeNull());
  expect(requests.find(({ path }) => path.endsWith('/keep'))?.headers.get('If-Match')).toBe('"9"');
  expect(screen.getByText('has left; kept')).toBeDefined();
});

test('an invitation gives a link, its token in the fragment', async () => {
  server({
    [`POST ${acme}/invitations`]: () => ({ status: 201, json: { invitation, token: '3q2-7wAB9x' } }),
  });
  const { user } = open('/t/acme/settings/members');
  await user.click(await screen.findByRole('button', { name: 'Invite' }));
  await user.type(await screen.findByLabelText('E-mail'), 'grace@example.com');
  await user.click(screen.getByRole('button', { name: 'Create link' }));
  expect(await screen.findByText(`${window.location.origin}/invitation#3q2-7wAB9x`)).toBeDefined();
});

test('removing a member names the changes that they scheduled, and cancels them if asked', async () => {
  const change = scheduledChange({ title: '12 limits of pro', rules: [], ends_at: null, requester_account_id: '2' });
  const queries: (string | null)[] = [];
  server({
    [`GET ${acme}/members`]: page([member, { ...member, account_id: '2', email: 'grace@example.com', name: '' }]),
    [`GET ${acme}/scheduled-changes`]: page([
      change,
      { ...change, change_id: '8', title: '3 limits of free', requester_account_id: '1' },
      { ...change, change_id: '9', title: '5 limits of free', state: 'in_force' },
    ]),
    [`DELETE ${acme}/members/2`]: ({ query }: { query: URLSearchParams }) => {
      queries.push(query.get('scheduled_changes'));
      return { status: 204 };
    },
  });
  const { user } = open('/t/acme/settings/members');
  for (const cancels of [false, true]) {
    await user.click(await screen.findByRole('button', { name: 'Remove grace@example.com' }));
    const dialog = await screen.findByRole('dialog');
    expect(await within(dialog).findByText(/12 limits of pro/)).toBeDefined();
    expect(dialog.textContent).not.toContain('of free');
    if (cancels) await user.click(within(dialog).getByLabelText('Cancel these changes'));
    await user.click(within(dialog).getByRole('button', { name: 'Remove member' }));
    await waitFor(() => expect(queries.at(-1)).toBe(cancels ? 'cancel' : 'keep'));
    await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  }
});

test('the last owner cannot be removed, and the dialog says why', async () => {
  server({
    [`DELETE ${acme}/members/1`]: () =>
      problem(409, 'conflict', { detail: 'A tenant needs an owner; make somebody else one first.' }),
  });
  const { user } = open('/t/acme/settings/members');
  await user.click(await screen.findByRole('button', { name: 'Remove ada@example.com' }));
  await user.click(await screen.findByRole('button', { name: 'Remove member' }));
  expect(await screen.findByText(/needs an owner/)).toBeDefined();
});

test('a lost race over the settings shows both versions, and mine is saved over theirs', async () => {
  let etag = '"1"';
  const saved: { ifMatch: string | null; body: unknown }[] = [];
  server({
    [`GET ${acme}`]: () => ({
      json: tenant({ name: etag === '"1"' ? 'Acme' : 'Acme Corp' }),
      headers: { ETag: etag },
    }),
    [`PATCH ${acme}`]: ({ body, headers }: { body: { name: string }; headers: Headers }) => {
      saved.push({ ifMatch: headers.get('If-Match'), body });
      if (saved.length === 1) {
        etag = '"2"';
        return problem(412, 'precondition-failed');
      }
      return { json: tenant({ name: body.name }), headers: { ETag: '"3"' } };
    },
  });
  const { user } = open('/t/acme/settings/tenant');
  const name = await screen.findByLabelText('Name');
  await user.retype(name, 'Acme Ltd');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed these settings/ });
  expect(within(dialog).getByText('Acme Corp')).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(saved.map(({ ifMatch }) => ifMatch)).toEqual(['"1"', '"2"']));
  expect(saved[1]?.body).toMatchObject({ name: 'Acme Ltd', default_plan: 'free' });
});

test('a form of settings that nobody touched shows what a colleague saves', async () => {
  let name = 'Acme';
  server({ [`GET ${acme}`]: () => ({ json: tenant({ name }), headers: { ETag: `"${name}"` } }) });
  const { queries } = open('/t/acme/settings/tenant');
  const field = await screen.findByLabelText<HTMLInputElement>('Name');
  expect(field.value).toBe('Acme');
  name = 'Acme Corp';
  await queries.invalidateQueries();
  await waitFor(() => expect(field.value).toBe('Acme Corp'));
});

test('discarded edits of the settings come back', async () => {
  server({ [`GET ${acme}`]: () => ({ json: tenant(), headers: { ETag: '"1"' } }) });
  const { user } = open('/t/acme/settings/tenant');
  const name = await screen.findByLabelText<HTMLInputElement>('Name');
  const before = name.value;
  await user.retype(name, 'Acme Ltd');
  await user.click(screen.getByRole('button', { name: 'Discard edits' }));
  expect(name.value).toBe(before);
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  expect(name.value).toBe('Acme Ltd');
});

test('an import changes nothing before its changes were seen', async () => {
  const asked: { dry: string | null; body: unknown }[] = [];
  const change = {
    change: 'update',
    label: 'user:{user_id} [free]',
    fields: [{ field: 'rate', before: '10 per second', after: '20 per second' }],
  };
  const requests = server({
    [`POST ${acme}/import`]: ({ query, body }: { query: URLSearchParams; body: unknown }) => {
      asked.push({ dry: query.get('dry_run'), body });
      return {
        json: {
          dry_run: query.get('dry_run') === 'true',
          plans: [],
          rules: [change],
          overrides: [],
          gateways: [{ change: 'create', label: 'authorize', fields: [] }],
          text: '',
        },
      };
    },
  });
  const { user } = open('/t/acme/settings/import-export');
  await user.click(await screen.findByLabelText('YAML'));
  await user.paste('rules: []');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  const diff = await screen.findByRole('region', { name: 'Changes' });
  expect(diff.textContent).toMatch(/10 per second → 20 per second/);
  expect(await screen.findByText(/Record checks \(page Replays\) to see here/)).toBeDefined();
  expect(requests.find(({ path }) => path.endsWith('/effect'))?.body).toEqual({
    file: 'rules: []',
    prune: false,
  });
  expect(asked).toEqual([{ dry: 'true', body: 'rules: []' }]);
  await user.click(screen.getByRole('button', { name: 'Apply 2 changes' }));
  await waitFor(() => expect(asked.at(-1)?.dry).toBe('false'));
});

test('a file that cannot be read says on which line', async () => {
  server({
    [`POST ${acme}/import`]: () =>
      problem(400, 'invalid-request', { errors: [{ pointer: '/lines/3', detail: 'rate is missing' }] }),
  });
  const { user } = open('/t/acme/settings/import-export');
  await user.click(await screen.findByLabelText('YAML'));
  await user.paste('rules: x');
  await user.click(screen.getByRole('button', { name: 'Review changes' }));
  expect((await screen.findByText('Line 3:')).parentElement?.textContent).toBe('Line 3: rate is missing');
});

test('what was undone from the audit log can be made again, but not undone twice', async () => {
  const entries = [auditEntry()];
  const requests = server({
    [`GET ${acme}/audit`]: () => ({ json: page(entries) }),
    [`POST ${acme}/audit/812/revert`]: () => {
      const [done] = entries as [ReturnType<typeof auditEntry>];
      const actor = { ...done.actor, act: 'revert 812' };
      const undo = { ...done, audit_id: '813', actor, before: done.after, after: done.before };
      entries.unshift(undo);
      return { json: undo };
    },
    [`GET ${acme}/audit/813`]: () => ({ json: entries[0] }),
  });
  const { user, router } = open('/t/acme/settings/audit?entry=812');
  await user.click(await screen.findByRole('button', { name: 'Undo …' }));
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  expect(await screen.findByText('This change was undone.')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Undo …' })).toBeNull();
  router.history.push('/t/acme/settings/audit?entry=813');
  expect(await screen.findByRole('button', { name: 'Redo …' })).toBeDefined();
  expect(requests.filter(({ path }) => path.endsWith('/revert'))).toHaveLength(1);
});

test('an entry of the audit log shows what differed, and undoing it asks first', async () => {
  const requests = server({ [`POST ${acme}/audit/812/revert`]: auditEntry({ audit_id: '813' }) });
  const { user, router } = open('/t/acme/settings/audit');
  await user.click(await screen.findByText(/rule Each user/));
  await waitFor(() => expect(router.state.location.searchStr).toBe('?entry=812'));
  const diff = await screen.findByRole('table', { name: 'What changed' });
  expect(within(diff).getAllByRole('row')[1]?.textContent).toBe('Rate10 per second20 per second');
  await user.click(await screen.findByRole('button', { name: 'Undo …' }));
  expect(requests.some(({ path }) => path.endsWith('/revert'))).toBe(false);
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  await waitFor(() => expect(requests.some(({ path }) => path.endsWith('/revert'))).toBe(true));
});

test('undoing says that what returns has ended meanwhile', async () => {
  const entry = auditEntry({
    audit_id: '812',
    action: 'remove',
    object: { kind: 'override', id: '12:42' },
    before: { rate_per_second: 20, burst_capacity: 100, expires_at: '2020-11-21T06:00:00Z' },
    after: null,
  });
  server({ [`GET ${acme}/audit`]: page([entry]) });
  const { user } = open('/t/acme/settings/audit?entry=812');
  await user.click(await screen.findByRole('button', { name: 'Undo …' }));
  expect(
    await screen.findByText(/^Restores the override of user 42.*, which ended at .* has no effect$/),
  ).toBeDefined();
});

test('the log shows old and new values, and undoing a save undoes all of it or says what clashes', async () => {
  const two = [
    auditEntry({ audit_id: '813', change_id: '812' }),
    auditEntry({
      audit_id: '812',
      change_id: '812',
      action: 'remove',
      object: { kind: 'override', id: '12:42' },
      after: null,
    }),
  ];
  let whole: string | null = null;
  server({
    [`GET ${acme}/audit`]: page(two),
    [`GET ${acme}/audit/813`]: two[0],
    [`POST ${acme}/audit/813/revert`]: ({ query }: { query: URLSearchParams }) => {
      whole = query.get('whole');
      return problem(409, 'conflict', { errors: [{ pointer: '/audit/812', detail: 'has changed again since' }] });
    },
  });
  const { user } = open('/t/acme/settings/audit?entry=813');
  expect(await screen.findByText(/Rate 10 per second → 20 per second/)).toBeDefined();
  await user.click(await screen.findByRole('button', { name: 'Undo …' }));
  const dialog = await screen.findByRole('dialog', { name: 'Undo 2 changes?' });
  const lines = within(await within(dialog).findByRole('list', { name: 'What returns' })).getAllByRole('listitem');
  expect(lines[0]?.textContent).toContain('Rate: 20 per second → 10 per second');
  expect(lines[1]?.textContent).toContain('Restores the override of user 42');
  await user.click(within(dialog).getByRole('button', { name: 'Undo' }));
  expect((await within(dialog).findByRole('alert')).textContent).toMatch(
    /^Nothing was undone: the override of user 42 .* has changed again since\.$/,
  );
  expect(whole).toBe('true');
});

test('an import is one line of the log, which opens to its rows, each with its undo', async () => {
  const many = Array.from({ length: 60 }, (_, n) => ({
    id: `12:user-${n}`,
    before: null,
    after: { rule_id: '12', user_id: `user-${n}`, rate_per_second: 5, rate_unit: 'second', burst_capacity: 9 },
  }));
  const packed = auditEntry({
    action: 'create',
    object: { kind: 'override', id: '' },
    before: null,
    after: null,
    row_count: 60,
  });
  let undone = '';
  server({
    [`GET ${acme}/audit`]: ({ query }: { query: URLSearchParams }) => ({
      json: page([query.get('object_id') ? { ...packed, ...many[59], row_count: undefined, row: 60 } : packed]),
    }),
    [`GET ${acme}/audit/812`]: { ...packed, rows: many },
    [`POST ${acme}/audit/812/revert`]: ({ query }: { query: URLSearchParams }) => {
      undone = query.toString();
      return problem(409, 'conflict', {
        errors: [{ pointer: '/audit/812/rows/60', detail: 'has changed again since' }],
      });
    },
  });
  const { user, router } = open('/t/acme/settings/audit');
  await user.click(await screen.findByText(/60 overrides/));
  const rows = await screen.findByRole('list', { name: 'What changed' });
  expect(within(rows).getAllByRole('listitem')).toHaveLength(50);
  expect(within(rows).getAllByRole('listitem')[7]?.textContent).toMatch(
    /^the override of user user-7 on .*Rate 5 per second, Burst 9Undo …$/,
  );
  await user.click(screen.getByRole('button', { name: 'Show more' }));
  await user.click(within(rows).getByLabelText(/^Undo the override of user user-59 /));
  const dialog = await screen.findByRole('dialog', { name: 'Undo this change?' });
  expect(await within(dialog).findByText(/^Removes the override of user user-59 /)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Undo' }));
  expect((await within(dialog).findByRole('alert')).textContent).toMatch(
    /^Nothing was undone: the override of user user-59 .* has changed again since\.$/,
  );
  expect(undone).toBe('row=60');
  await user.click(within(dialog).getByRole('button', { name: 'Cancel' }));

  await user.click(await screen.findByRole('button', { name: 'Undo …' }));
  const all = await screen.findByRole('dialog', { name: 'Undo 60 changes?' });
  await user.click(within(all).getByRole('button', { name: 'Undo' }));
  expect((await within(all).findByRole('alert')).textContent).toBe(
    'Nothing was undone: row 60 of 60 overrides has changed again since.',
  );
  expect(undone).toBe('');
  await user.click(within(all).getByRole('button', { name: 'Cancel' }));

  router.history.push('/t/acme/settings/audit?kind=override&object=12:user-59&entry=812');
  expect(await screen.findByText(/created the override of user user-59 on/)).toBeDefined();
  expect(screen.getByRole('table', { name: 'What changed' }).textContent).toContain('Rate5 per second');
  expect(screen.queryByRole('list', { name: 'What changed' })).toBeNull();
});

test('the filters of the audit log are in the address, and asked of the server', async () => {
  const asked: string[] = [];
  server({
    [`GET ${acme}/audit`]: ({ query }: { query: URLSearchParams }) => {
      asked.push(query.toString());
      return { json: page([]) };
    },
  });
  open('/t/acme/settings/audit?kind=rule&object=12&actor=1&action=update');
  expect(await screen.findByText('No results')).toBeDefined();
  expect(asked[0]).toBe('actor_id=1&action=update&object_kind=rule&object_id=12&limit=100');
});

test.each([
  ['keys', 'API keys', []],
  ['members', 'Members', []],
  ['tenant', 'Tenant', []],
  ['import-export', 'Export', []],
  ['audit', 'Audit log', ['Export CSV']],
])('a viewer sees %s, and no button that would fail', async (section, heading, buttons) => {
  server({}, 'viewer');
  open(`/t/acme/settings/${section}`);
  expect(await screen.findByRole('heading', { name: heading })).toBeDefined();
  const content = within(screen.getByRole('main'));
  expect(content.queryAllByRole('button').map((button) => button.textContent)).toEqual(buttons);
});

test('a section that the role does not show says so', async () => {
  server({ [`GET ${acme}/api-keys`]: () => problem(403, 'forbidden', { detail: 'It takes an owner.' }) });
  open('/t/acme/settings/keys');
  expect(await screen.findByText('It takes an owner.')).toBeDefined();
});

const refused = securityEvent({
  count: 3,
  account_id: '7',
  who: 'eve@example.com',
  tenant: 'acme',
  user_agent: '',
  detail: 'createKey',
});

test('an owner sees who was refused in the tenant, by the filters of the address', async () => {
  const asked: string[] = [];
  server({
    [`GET ${acme}/security-log`]: ({ query }: { query: URLSearchParams }) => {
      query.delete('from');
      query.delete('until');
      asked.push(query.toString());
      return { json: page([refused]) };
    },
  });
  const { user } = open('/t/acme/settings/security?kind=denied&ip=203.0.113.66');
  expect(await screen.findByText('Permission denied, 3 times')).toBeDefined();
  expect(screen.queryByRole('columnheader', { name: 'Tenant' })).toBeNull();
  await user.click(screen.getByRole('button', { name: 'Clear' }));
  await waitFor(() => expect(asked).toEqual(['kind=denied&ip=203.0.113.66&limit=100', 'limit=100']));
  // Signing in is of no tenant.
  await user.click(screen.getByRole('combobox', { name: 'Event' }));
  expect((await screen.findAllByRole('option')).map(({ textContent }) => textContent)).toEqual([
    'Key or session refused',
    'Key used from outside its networks',
    'Permission denied',
    'Exported data',
    'Left a key that still works',
  ]);
});

test('the security log is its owners’, and nobody else asks for it', async () => {
  const requests = server({}, 'editor');
  open('/t/acme/settings/security');
  expect(await screen.findByText('This requires the owner role. An owner can change your role.')).toBeDefined();
  expect(requests.some(({ path }) => path.endsWith('/security-log'))).toBe(false);
});

test('a key without a recorded use is not said to be unused when it is revoked', async () => {
  server({ [`GET ${acme}/api-keys`]: page([key({ name: 'ci', last_used_at: null })]) });
  const { user } = open('/t/acme/settings/keys');
  await user.click(await screen.findByRole('button', { name: 'Actions of ci' }));
  await user.click(await screen.findByRole('menuitem', { name: /Revoke/ }));
  const dialog = await screen.findByRole('dialog');
  expect(dialog.textContent).toMatch(/No use is recorded yet\. Uses appear within a minute\./);
  expect(dialog.textContent).not.toMatch(/last used never/);
});

test('an owner sees who has a second factor, and whom requiring one would lock out', async () => {
  const own = { ...session(), two_factors: true };
  const people = [
    { ...member, second_factor: true },
    { ...member, account_id: '2', email: 'bob@example.com', name: 'Bob', role: 'viewer' },
    { ...member, account_id: '3', email: 'gone@example.com', name: 'Gone', disabled: true },
  ];
  server({ 'GET /api/v1/session': own, [`GET ${acme}/members`]: page(people) });
  const { user, router } = open('/t/acme/settings/members');
  expect(await screen.findByRole('columnheader', { name: 'Second factor' })).toBeDefined();
  expect(screen.getAllByText('None')).toHaveLength(2);
  await router.navigate({
    to: '/t/$tenant/settings/$section',
    params: { tenant: 'acme', section: 'tenant' },
  });
  await user.click(await screen.findByRole('button', { name: 'Require …' }));
  expect(await screen.findByText('1 member')).toBeDefined();
  expect(screen.getByText(/of 3, bob@example.com/)).toBeDefined();
});

test('only owners are told who has a second factor', async () => {
  server({ [`GET ${acme}/members`]: page([{ ...member, second_factor: null }]) }, 'viewer');
  open('/t/acme/settings/members');
  expect(await screen.findByText('Ada')).toBeDefined();
  expect(screen.queryByRole('columnheader', { name: 'Second factor' })).toBeNull();
});
