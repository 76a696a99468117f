import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { explanation } from '../../../../test/explain';
import { fakeServer, problem, session, tenant } from '../../../../test/fake';
import { open } from '../../../../test/render';

const acme = '/api/v1/tenants/acme';
const authorize = `${acme}/gateways/authorize`;
const at = '/t/acme/settings/gateways';

/** A server whose mapping is stored, and changes by writes at its current version. */
function server(
  mapping: object | null,
  more: Record<string, unknown> = {},
  role: 'viewer' | 'editor' = 'editor',
) {
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

test('without a mapping the screen teaches; a new one is saved over the default', async () => {
  const { requests } = server(null);
  const { user } = open(at);
  expect(await screen.findByText('No mapping yet')).toBeDefined();
  expect(screen.getByRole('region', { name: 'nginx: sluice.conf' }).textContent).toContain(
    'auth_request /_sluice;',
  );
  await user.click(screen.getByText('HAProxy'));
  expect(screen.getByRole('button', { name: 'Copy sluice.lua' })).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'New mapping' }));
  await user.selectOptions(await screen.findByLabelText('User'), 'header');
  fireEvent.change(screen.getByLabelText('User: name'), { target: { value: 'X-Api-Key' } });
  fireEvent.change(screen.getByLabelText('Endpoint templates'), {
    target: { value: '/orders/{id}\n/files/*\n' },
  });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect(await screen.findByText('Mapping saved. It takes effect within 2 s')).toBeDefined();
  const put = requests.find(({ method }) => method === 'PUT');
  expect(put?.headers.get('If-Match')).toBe('"0"');
  expect(put?.body).toEqual({
    user: { header: 'X-Api-Key' },
    endpoint: { templates: ['/orders/{id}', '/files/*'] },
  });
});

test('the sample is tried with the mapping that is not saved yet, and shows its check and rules', async () => {
  const { requests } = server({ user: { header: 'X-User' } });
  const { user } = open(at);
  expect(await screen.findByText('sha256-abc')).toBeDefined();
  expect(screen.getByText('GET /orders/{id}')).toBeDefined();
  expect(within(screen.getByRole('table', { name: 'Matched rules' })).getByText('Each user')).toBeDefined();
  await user.click(screen.getByLabelText('Keep the value as it is'));
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

test('a sample that is no check says why, and what is wrong with the mapping by field', async () => {
  let reply = problem(400, 'invalid-request', { detail: 'The header X-User came more than once.' });
  server({ user: { header: 'X-User' } }, { [`POST ${authorize}/try`]: () => reply });
  open(at);
  expect(await screen.findByText(/The header X-User came more than once/)).toBeDefined();
  reply = problem(400, 'invalid-request', {
    errors: [{ pointer: '/mapping/user/header', detail: 'must be the name of a header' }],
  });
  fireEvent.change(screen.getByLabelText('User: name'), { target: { value: 'X User' } });
  expect(await screen.findByText('user.header')).toBeDefined();
});

test('errors of a save stand at their fields', async () => {
  server(
    { user: { header: 'X-User' }, jwt: { jwks_url: 'https://id.example.com' } },
    {
      [`PUT ${authorize}`]: () =>
        problem(400, 'invalid-request', {
          errors: [
            { pointer: '/user/header', detail: 'is no header' },
            { pointer: '/jwt/jwks_url', detail: 'must lead to a public address' },
            { pointer: '/attributes/a/b/header', detail: 'is no header either' },
            { pointer: '/elsewhere', detail: 'is odd' },
          ],
        }),
    },
  );
  const { user } = open(at);
  await user.click(await screen.findByRole('button', { name: 'Add attribute' }));
  fireEvent.change(screen.getByLabelText('Attribute 1'), { target: { value: 'a.b' } });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const errorOf = async (label: string) => {
    const field = await screen.findByLabelText(label);
    await waitFor(() => expect(field.getAttribute('aria-invalid')).toBe('true'));
    return document.getElementById(field.getAttribute('aria-describedby')?.split(' ').at(0) ?? '')
      ?.textContent;
  };
  expect(await errorOf('User: name')).toBe('is no header');
  expect(await errorOf('URL of the keys')).toBe('must lead to a public address');
  expect(await errorOf('Source 1: name')).toBe('is no header either');
  expect(screen.getByText('elsewhere is odd')).toBeDefined();
});

test('a lost race shows both versions, and mine is saved over theirs', async () => {
  const { requests, stored } = server({ user: { header: 'X-User' } });
  const { user } = open(at);
  const name = await screen.findByLabelText('User: name');
  fireEvent.change(name, { target: { value: 'X-Mine' } });
  Object.assign(stored, { mapping: { user: { header: 'X-Theirs' } }, version: 7 });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed this mapping/ });
  expect(within(dialog).getByText('header X-Theirs, hashed')).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  expect(await screen.findByText('Mapping saved. It takes effect within 2 s')).toBeDefined();
  const puts = requests.filter(({ method }) => method === 'PUT');
  expect(puts.map(({ headers }) => headers.get('If-Match'))).toEqual(['"1"', '"7"']);
  expect(stored.mapping).toEqual({ user: { header: 'X-Mine' } });
});

test('JSON and the form are one mapping, and JSON that the form cannot show stays JSON', async () => {
  const { requests } = server({ user: { header: 'X-User' } });
  const { user, router } = open(`${at}?view=json`);
  const json = await screen.findByLabelText('Mapping as JSON');
  expect(JSON.parse((json as HTMLTextAreaElement).value)).toEqual({ user: { header: 'X-User' } });
  const write = (text: string) =>
    fireEvent.change(screen.getByLabelText('Mapping as JSON'), { target: { value: text } });
  const form = () => screen.getByRole('radio', { name: 'Form' });
  write('{"user": ');
  expect(await screen.findByText(/is not JSON/)).toBeDefined();
  expect(form()).toHaveProperty('disabled', true);
  expect(screen.getByRole('button', { name: 'Save' })).toHaveProperty('disabled', true);
  write('{"user": {"header": "X-User", "salt": "x"}}');
  expect(await screen.findByText(/keep to JSON/)).toBeDefined();
  expect(form()).toHaveProperty('disabled', true);
  write('{"plan": {"header": "X-Plan"}}');
  await waitFor(() => expect(form()).toHaveProperty('disabled', false));
  await user.click(form());
  expect(await screen.findByLabelText('Plan: name')).toHaveProperty('value', 'X-Plan');
  expect(router.state.location.searchStr).toBe('');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  await waitFor(() =>
    expect(requests.find(({ method }) => method === 'PUT')?.body).toEqual({ plan: { header: 'X-Plan' } }),
  );
});

test('removing asks first, and the screen teaches again', async () => {
  const { requests } = server({ user: { header: 'X-User' } });
  const { user } = open(at);
  await user.click(await screen.findByRole('button', { name: 'Remove mapping …' }));
  expect(requests.some(({ method }) => method === 'DELETE')).toBe(false);
  await user.click(await screen.findByRole('button', { name: 'Remove mapping' }));
  expect(await screen.findByText('No mapping yet')).toBeDefined();
  expect(requests.find(({ method }) => method === 'DELETE')?.headers.get('If-Match')).toBe('"1"');
});

test('a viewer reads the mapping and tries requests, and has nothing to save', async () => {
  server({ user: { header: 'X-User' }, address: { trusted_hops: 2 } }, {}, 'viewer');
  open(at);
  expect(await screen.findByText('header X-User, hashed')).toBeDefined();
  expect(screen.getByText('header X-Forwarded-For, 2 trusted hops')).toBeDefined();
  expect(await screen.findByText('sha256-abc')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Save' })).toBeNull();
  expect(screen.queryByRole('button', { name: /Remove/ })).toBeNull();
  expect(screen.queryByLabelText('User')).toBeNull();
});

test('discarded edits of a mapping come back', async () => {
  server({ user: { header: 'X-Api-Key' } });
  const { user } = open(at);
  const name = await screen.findByLabelText<HTMLInputElement>('User: name');
  fireEvent.change(name, { target: { value: 'X-Other' } });
  await user.click(screen.getByRole('button', { name: 'Discard edits' }));
  expect(screen.getByLabelText('User: name')).toHaveProperty('value', 'X-Api-Key');
  await user.click(await screen.findByRole('button', { name: 'Undo' }));
  expect(screen.getByLabelText('User: name')).toHaveProperty('value', 'X-Other');
});
