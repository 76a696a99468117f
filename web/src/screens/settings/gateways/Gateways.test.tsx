import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { explanation } from '../../../../test/explain';
import { fakeServer, problem, session, tenant } from '../../../../test/fake';
import { open } from '../../../../test/render';

const acme = '/api/v1/tenants/acme';
const authorize = `${acme}/gateways/authorize`;
const at = '/t/acme/settings/gateways';

function server(mapping: object | null, more: Record<string, unknown> = {}, role: 'viewer' | 'editor' = 'editor') {
  const stored = { mapping: mapping ?? {}, version: mapping ? 1 : 0 };
  const answer = () => ({
    json: { ...stored, is_default: stored.version === 0 },
    headers: { ETag: `"${stored.version}"` },
  });
  const put = ({ body, headers }: { body: object; headers: Headers }) => {
    if (headers.get('If-Match') !== `"${stored.version}"`) return problem(412, 'precondition-failed');
    Object.assign(stored, { mapping: body, version: stored.version + 1 });
    return answer();
  };
  const requests = fakeServer({
    'GET /api/v1/session': session(role),
    [`GET ${acme}`]: () => ({ json: tenant({ role }), headers: { ETag: '"1"' } }),
    [`GET ${authorize}`]: answer,
    [`PUT ${authorize}`]: put,
    [`DELETE ${authorize}`]: () => {
      Object.assign(stored, { mapping: {}, version: 0 });
      return { status: 204 };
    },
    [`POST ${authorize}/try`]: {
      check: { user_id: 'sha256-abc', endpoint: '/orders/{id}', method: 'GET', ip: '203.0.113.9', cost: 5 },
      explanation: explanation(),
    },
    ...more,
  });
  return { requests, stored };
}

const write = (mapping: object | string) =>
  fireEvent.change(screen.getByLabelText('JSON'), {
    target: { value: typeof mapping === 'string' ? mapping : JSON.stringify(mapping) },
  });

test('without a mapping an example can be inserted; a new one is saved over the default', async () => {
  const { requests } = server(null);
  const { user } = open(at);
  await user.click(await screen.findByRole('button', { name: 'Insert example' }));
  expect(screen.getByRole('region', { name: 'sluice.conf' }).textContent).toContain('auth_request /_sluice;');
  await user.click(screen.getByText('HAProxy'));
  expect(screen.getByRole('button', { name: 'Copy sluice.lua' })).toBeDefined();
  const mapping = { user: { header: 'X-Api-Key' }, endpoint: { templates: ['/orders/{id}', '/files/*'] } };
  write(mapping);
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect(await screen.findByText('Mapping saved. It takes effect within 2 s')).toBeDefined();
  const put = requests.find(({ method }) => method === 'PUT');
  expect(put?.headers.get('If-Match')).toBe('"0"');
  expect(put?.body).toEqual(mapping);
  expect(screen.getByRole('button', { name: 'Save' })).toHaveProperty('disabled', true);
});

test('the sample is tried with the mapping that is not saved yet, and shows its check and rules', async () => {
  const { requests } = server({ user: { header: 'X-User' } });
  open(at);
  expect(await screen.findByText('sha256-abc')).toBeDefined();
  expect(screen.getByText('GET /orders/{id}')).toBeDefined();
  expect(within(screen.getByRole('table', { name: 'Matched rules' })).getByText('Each user')).toBeDefined();
  write({ user: { header: 'X-User', plain: true } });
  fireEvent.change(screen.getByLabelText('Headers'), { target: { value: 'X-User: 42' } });
  const tried = () => requests.filter(({ path }) => path.endsWith('/try')).at(-1)?.body;
  await waitFor(() =>
    expect(tried()).toEqual({
      method: 'GET',
      uri: '/orders/17?limit=5',
      headers: [{ name: 'X-User', value: '42' }],
      mapping: { user: { header: 'X-User', plain: true } },
    }),
  );
  expect(requests.some(({ method }) => method === 'PUT')).toBe(false);
});

test('a sample that is no check says why', async () => {
  const reply = problem(400, 'invalid-request', { detail: 'The header X-User came more than once.' });
  server({ user: { header: 'X-User' } }, { [`POST ${authorize}/try`]: () => reply });
  open(at);
  expect(await screen.findByText(/The header X-User came more than once/)).toBeDefined();
});

test('errors of a save are said by field, and what was typed stays', async () => {
  const errors = [{ pointer: '/user/header', detail: 'is no header' }];
  server({ user: { header: 'X-User' } }, { [`PUT ${authorize}`]: () => problem(400, 'invalid-request', { errors }) });
  const { user } = open(at);
  await screen.findByLabelText('JSON');
  write({ user: { header: 'X User' } });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect(await screen.findByText('user/header is no header')).toBeDefined();
  expect(screen.getByLabelText('JSON')).toHaveProperty('value', '{"user":{"header":"X User"}}');
});

test('what is wrong with a mapping is said at its JSON, before it is saved', async () => {
  let errors = [{ pointer: '/mapping/user/header', detail: 'is no header' }];
  server(
    { user: { header: 'X-User' } },
    { [`POST ${authorize}/try`]: () => problem(400, 'invalid-request', { errors }) },
  );
  open(at);
  const json = await screen.findByLabelText('JSON');
  await waitFor(() => expect(json).toHaveProperty('ariaInvalid', 'true'));
  expect(screen.getByText('user.header is no header')).toBeDefined();
  expect(screen.getByText('Correct the JSON of the mapping first.')).toBeDefined();
  errors = [{ pointer: '/uri', detail: 'is no path' }];
  write({ user: { header: 'X-Other' } });
  await waitFor(() => expect(screen.queryByText('user.header is no header')).toBeNull());
  expect(screen.getByText('uri').parentElement?.textContent).toBe('uri is no path');
});

test.each([
  [{ user: { header: 'X-User' } }, /^Visitors can send X-User and choose who they are/],
  [{ user: { claim: 'sub' }, plan: { header: 'X-Plan' } }, null],
])('the files of each proxy warn where visitors choose who they are: %o', async (mapping, words) => {
  server(mapping);
  const { user } = open(at);
  for (const proxy of ['nginx', 'Caddy', 'HAProxy', 'Envoy']) {
    await user.click(await screen.findByRole('radio', { name: proxy }));
    await screen.findByText(/stands for the address where it listens/);
    const note = screen.queryByRole('note')?.textContent;
    if (words) expect(note).toMatch(words);
    else expect(note).toBeUndefined();
  }
});

test('what is no JSON cannot be saved, and says so', async () => {
  server({ user: { header: 'X-User' } });
  open(at);
  await screen.findByLabelText('JSON');
  write('{"user": ');
  expect(await screen.findByText(/is not JSON/)).toBeDefined();
  expect(screen.getByRole('button', { name: 'Save' })).toHaveProperty('disabled', true);
});

test('a lost race is merged by field, and a field that both changed is asked about', async () => {
  const { requests, stored } = server({ user: { header: 'X-User' } });
  const { user } = open(at);
  await screen.findByLabelText('JSON');
  write({ user: { header: 'X-User' }, plan: { header: 'X-Plan' } });
  const theirs = { user: { header: 'X-User' }, cost: { header: 'X-Cost' } };
  Object.assign(stored, { mapping: theirs, version: 6 });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(stored.mapping).toEqual({ ...theirs, plan: { header: 'X-Plan' } }));
  await waitFor(() => expect(screen.getByRole('button', { name: 'Save' })).toHaveProperty('disabled', true));

  write({ user: { header: 'X-Mine' } });
  Object.assign(stored, { mapping: { ...stored.mapping, user: { header: 'X-Theirs' } }, version: 9 });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed this mapping/ });
  expect(within(dialog).getAllByRole('row')).toHaveLength(2);
  expect(within(dialog).getByText('{"header":"X-Theirs"}')).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(stored.mapping).toEqual({ user: { header: 'X-Mine' } }));
  const puts = requests.filter(({ method }) => method === 'PUT');
  expect(puts.map(({ headers }) => headers.get('If-Match'))).toEqual(['"1"', '"6"', '"7"', '"9"']);
});

test('removing asks first, and the defaults apply again', async () => {
  const { requests } = server({ user: { header: 'X-User' } });
  const { user } = open(at);
  await user.click(await screen.findByRole('button', { name: 'Remove mapping …' }));
  expect(requests.some(({ method }) => method === 'DELETE')).toBe(false);
  await user.click(await screen.findByRole('button', { name: 'Remove mapping' }));
  expect(await screen.findByText('Not set. The defaults apply.')).toBeDefined();
  expect(requests.find(({ method }) => method === 'DELETE')?.headers.get('If-Match')).toBe('"1"');
});

test('a viewer reads the mapping and tries requests, and has nothing to save', async () => {
  server({ user: { header: 'X-User' } }, {}, 'viewer');
  open(at);
  expect(await screen.findByLabelText('JSON')).toHaveProperty('readOnly', true);
  expect(await screen.findByText('sha256-abc')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Save' })).toBeNull();
  expect(screen.queryByRole('button', { name: /Remove/ })).toBeNull();
});

test('discarded edits of a mapping come back', async () => {
  server({ user: { header: 'X-Api-Key' } });
  const { user } = open(at);
  const before = (await screen.findByLabelText<HTMLTextAreaElement>('JSON')).value;
  write({ user: { header: 'X-Other' } });
  await user.click(screen.getByRole('button', { name: 'Discard edits' }));
  expect(screen.getByLabelText('JSON')).toHaveProperty('value', before);
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  expect(screen.getByLabelText('JSON')).toHaveProperty('value', '{"user":{"header":"X-Other"}}');
});
