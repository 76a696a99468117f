import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { explanation } from '../../../../test/explain';
import { fakeServer, problem, session, tenant } from '../../../../test/fake';
import { open } from '../../../../test/render';

const acme = '/api/v1/tenants/acme';
const descriptors = `${acme}/gateways/descriptors`;
const at = '/t/acme/settings/gateways?gateway=envoy';

function server(mapping: object | null, more: Record<string, unknown> = {}, role: 'viewer' | 'editor' = 'editor') {
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
          check: {
            costs: { requests: 0, total_tokens: 1200 },
            ip: '203.0.113.9',
            attributes: { descriptor: 'remote_address' },
          },
          explanation: explanation(),
          replaced: false,
          recorded: true,
          own_limit: false,
        },
        {
          check: { user_id: '42', endpoint: '/orders' },
          explanation: explanation(),
          replaced: true,
          recorded: false,
          own_limit: true,
        },
      ],
    },
    ...more,
  });
}

const write = (mapping: object) =>
  fireEvent.change(screen.getByLabelText('JSON'), { target: { value: JSON.stringify(mapping) } });

test('pasted descriptors are tried with the unsaved mapping, and each shows its check and rules', async () => {
  const requests = server({ domains: { edge: {} } });
  const { user } = open(at);
  expect(await screen.findByText('203.0.113.9')).toBeDefined();
  expect(within(screen.getByRole('table', { name: 'Matched rules' })).getByText('Each user')).toBeDefined();
  expect(screen.getByText(/Its hits are recorded/)).toBeDefined();
  expect(screen.getByText('1,200 total tokens')).toBeDefined();
  await user.click(screen.getByRole('radio', { name: 'Descriptor 2' }));
  expect(await screen.findByText('/orders')).toBeDefined();
  expect(screen.getByText(/Another descriptor of this request replaces this one/)).toBeDefined();
  write({ keys: { who: 'user_id' }, domains: { edge: {} } });
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

test('a descriptor’s limit is tried, and said to be ignored where the domain takes none', async () => {
  const requests = server({ domains: { edge: {} } });
  const { user } = open(at);
  expect(await screen.findByText('203.0.113.9')).toBeDefined();
  expect(screen.queryByText(/Its limit is ignored/)).toBeNull();
  const entries = [{ key: 'remote_address', value: '203.0.113.9' }];
  const limit = { requestsPerUnit: 7, unit: 'HOUR' };
  fireEvent.change(screen.getByLabelText('Descriptors'), {
    target: {
      value: JSON.stringify({
        descriptors: [
          { entries, limit },
          { entries, limit },
        ],
      }),
    },
  });
  expect(await screen.findByText(/Its limit is ignored/)).toBeDefined();
  const own = { entries, limit: { requests_per_unit: 7, unit: 'HOUR' } };
  await waitFor(() => expect(requests.at(-1)?.body).toMatchObject({ descriptors: [own, own] }));
  await user.click(screen.getByRole('radio', { name: 'Descriptor 2' }));
  await waitFor(() => expect(screen.queryByText(/Its limit is ignored/)).toBeNull());
});

test('a domain that is not the tenant’s, and a mapping that is wrong, are said', async () => {
  let reply: object = { json: { answered: false, results: [] } };
  server({ keys: { a: 'ip' } }, { [`POST ${descriptors}/try`]: () => reply });
  open(at);
  expect(await screen.findByText(/does not answer the domain/)).toBeDefined();
  reply = problem(400, 'invalid-request', {
    errors: [{ pointer: '/mapping/keys/a', detail: 'must be a field' }],
  });
  write({ keys: { a: 'x' } });
  expect(await screen.findByText('keys.a must be a field')).toBeDefined();
});

test('a viewer reads the mapping, tries descriptors, and has nothing to save', async () => {
  server({ domains: { edge: { templates: [['route']] } } }, {}, 'viewer');
  open(at);
  expect(await screen.findByLabelText('JSON')).toHaveProperty('readOnly', true);
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
  expect(await screen.findByText('Try a request')).toBeDefined();
  expect(router.state.location.searchStr).toBe('');
  await user.click(screen.getByRole('radio', { name: /gRPC/ }));
  expect(await screen.findByText('Try descriptors')).toBeDefined();
  expect(router.state.location.searchStr).toBe('?gateway=envoy');
});
