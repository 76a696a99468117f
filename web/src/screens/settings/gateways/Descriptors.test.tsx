import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { explanation } from '../../../../test/explain';
import { fakeServer, problem, session, tenant } from '../../../../test/fake';
import { open } from '../../../../test/render';

const acme = '/api/v1/tenants/acme';
const descriptors = `${acme}/gateways/descriptors`;
const at = '/t/acme/settings/gateways?gateway=envoy';

/** A server whose mapping of descriptors is stored. */
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
  return fakeServer({
    'GET /api/v1/session': session(role),
    [`GET ${acme}`]: () => ({ json: tenant({ role }), headers: { ETag: '"1"' } }),
    [`GET ${descriptors}`]: answer,
    [`PUT ${descriptors}`]: ({ body, headers }: { body: object; headers: Headers }) => {
      if (headers.get('If-Match') !== `"${stored.version}"`) return problem(412, 'precondition-failed');
      Object.assign(stored, { mapping: body, version: stored.version + 1 });
      return answer();
    },
    [`POST ${descriptors}/try`]: {
      answered: true,
      results: [
        {
          check: { ip: '203.0.113.9', attributes: { descriptor: 'remote_address' } },
          explanation: explanation(),
          replaced: false,
        },
        { check: { user_id: '42', endpoint: '/orders' }, explanation: explanation(), replaced: true },
      ],
    },
    ...more,
  });
}

test('a new mapping of descriptors is saved over the default, with domains and keys', async () => {
  const requests = server(null);
  const { user } = open(at);
  await user.click(await screen.findByRole('button', { name: 'New mapping' }));
  const write = (label: string, value: string) =>
    fireEvent.change(screen.getByLabelText(label), { target: { value } });
  write('Keys', 'customer = user_id\n');
  await user.click(screen.getByRole('button', { name: 'Add domain' }));
  write('Domain 1: name', 'edge');
  write('Domain 1: templates', 'route=login, remote_address\nroute\n');
  write('Domain 1: replaces', 'route=login,remote_address > route');
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect(await screen.findByText('Mapping saved. It takes effect within 2 s')).toBeDefined();
  const put = requests.find(({ method }) => method === 'PUT');
  expect(put?.headers.get('If-Match')).toBe('"0"');
  expect(put?.body).toEqual({
    keys: { customer: 'user_id' },
    domains: {
      edge: {
        templates: [['route=login', 'remote_address'], ['route']],
        replaces: { 'route=login,remote_address': ['route'] },
      },
    },
  });
});

test('pasted descriptors are tried with the mapping that is not saved yet, and each shows its check and rules', async () => {
  const requests = server({ domains: { edge: {} } });
  const { user } = open(at);
  expect(await screen.findByText('203.0.113.9')).toBeDefined();
  expect(within(screen.getByRole('table', { name: 'Matched rules' })).getByText('Each user')).toBeDefined();
  await user.click(screen.getByRole('radio', { name: 'Descriptor 2' }));
  expect(await screen.findByText('/orders')).toBeDefined();
  expect(screen.getByText(/Another descriptor of this request replaces this one/)).toBeDefined();
  fireEvent.change(screen.getByLabelText('Keys'), { target: { value: 'who = user_id' } });
  fireEvent.change(screen.getByLabelText('Descriptors'), { target: { value: 'who=7' } });
  const tried = () => requests.filter(({ path }) => path.endsWith('/try')).at(-1)?.body;
  await waitFor(() =>
    expect(tried()).toEqual({
      domain: 'edge',
      descriptors: [{ entries: [{ key: 'who', value: '7' }] }],
      mapping: { keys: { who: 'user_id' }, domains: { edge: {} } },
    }),
  );
  fireEvent.change(screen.getByLabelText('Descriptors'), { target: { value: '=7' } });
  expect(await screen.findByText(/must be “key=value, key=value”/)).toBeDefined();
});

test('a domain that is not the tenant’s, and a mapping that is wrong, are said', async () => {
  let reply: object = { json: { answered: false, results: [] } };
  server({ keys: { a: 'ip' } }, { [`POST ${descriptors}/try`]: () => reply });
  open(at);
  expect(await screen.findByText(/does not answer the domain/)).toBeDefined();
  reply = problem(400, 'invalid-request', {
    errors: [{ pointer: '/mapping/keys/a', detail: 'must be a field' }],
  });
  fireEvent.change(screen.getByLabelText('Keys'), { target: { value: 'a = x' } });
  expect(await screen.findByText('keys.a')).toBeDefined();
});

test('errors of a save stand at their lines', async () => {
  server(
    { keys: { a: 'ip' }, domains: { 'e.x': { templates: [['a'], ['b']] } } },
    {
      [`PUT ${descriptors}`]: () =>
        problem(400, 'invalid-request', {
          errors: [
            { pointer: '/keys/b', detail: 'must be a field' },
            { pointer: '/domains/e/x/templates/1', detail: 'stands there twice' },
          ],
        }),
    },
  );
  const { user } = open(at);
  fireEvent.change(await screen.findByLabelText('Keys'), { target: { value: 'b = ip' } });
  await user.click(screen.getByRole('button', { name: 'Save' }));
  expect(await screen.findByText('b = ip must be a field')).toBeDefined();
  expect(screen.getByText('b stands there twice')).toBeDefined();
});

test('a viewer reads the mapping, tries descriptors, and has nothing to save', async () => {
  server({ domains: { edge: { templates: [['route']] } } }, {}, 'viewer');
  open(at);
  expect(await screen.findByText('Domain edge')).toBeDefined();
  expect(await screen.findByText('203.0.113.9')).toBeDefined();
  expect(screen.queryByRole('button', { name: 'Save' })).toBeNull();
});

test('both kinds of gateways are one press apart, and the address says which', async () => {
  server(
    { domains: { edge: {} } },
    { [`GET ${acme}/gateways/authorize`]: { mapping: {}, is_default: true, version: 0 } },
  );
  const { user, router } = open(at);
  await user.click(await screen.findByRole('radio', { name: /HTTP/ }));
  expect(await screen.findByText('What would this request become?')).toBeDefined();
  expect(router.state.location.searchStr).toBe('');
  await user.click(screen.getByRole('radio', { name: /gRPC/ }));
  expect(await screen.findByText('What would these descriptors become?')).toBeDefined();
  expect(router.state.location.searchStr).toBe('?gateway=envoy');
});
