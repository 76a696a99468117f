import { expect, test } from 'vitest';
import type { AuthorizeMapping } from '~/api/types';
import { described, draftOf, formCovers, incomplete, mappingOf, same } from './draft';
import { read } from './json';
import { sampleOf } from './sample';

const full: AuthorizeMapping = {
  jwt: {
    header: 'X-Token',
    jwks_url: 'https://id.example.com/jwks',
    issuer: 'i',
    audience: 'a',
    optional: true,
  },
  user: { header: 'X-Api-Key', plain: true },
  plan: { claim: 'org.plan' },
  cost: { query: 'limit', default: 0 },
  endpoint: { header: 'X-Uri', method_header: 'X-Method', templates: ['/orders/{id}', '/files/*'] },
  address: { header: 'X-Real-Ip', trusted_hops: 2 },
  attributes: { org: { claim: 'org.id' }, 'a.b': { header: 'X-B' } },
};

test.each<[string, AuthorizeMapping]>([
  ['everything', full],
  ['nothing', {}],
  ['keys in the mapping', { jwt: { jwks: '{"keys":[]}' }, user: { claim: 'sub' } }],
])('the form keeps a mapping of %s', (_, mapping) => {
  expect(mappingOf(draftOf(mapping))).toEqual(mapping);
  expect(formCovers(mapping)).toBe(true);
});

test.each<[string, unknown]>([
  ['a field that it does not know', { user: { header: 'X-User', salt: 'x' } }],
  ['two sources', { user: { header: 'X-User', claim: 'sub' } }],
  ['a field of another type', { endpoint: { templates: '/orders' } }],
  ['a null', { user: null, attributes: 5 }],
])('the form does not cover %s', (_, mapping) => {
  expect(formCovers(mapping as AuthorizeMapping)).toBe(false);
});

test('a mapping is the same in another order and with fields that say nothing, and a cost of 0 says something', () => {
  expect(same({ address: { trusted_hops: 0 }, user: { claim: 'a' } }, { user: { claim: 'a' } })).toBe(true);
  expect(same({ cost: { default: 0 } }, {})).toBe(false);
  expect(same({ attributes: { org: { header: '' } } }, {})).toBe(false);
});

test('what is chosen without a name is not dropped in silence', () => {
  const draft = draftOf({});
  expect(mappingOf({ ...draft, user: { from: 'header', name: '' } })).toEqual({ user: { header: '' } });
  expect(incomplete({ ...draft, cost: { from: 'query', name: ' ' } })).toEqual({
    '/cost/query': 'must have a name',
  });
  const twice = [0, 1].map((id) => ({ id, attribute: 'org', from: 'header' as const, name: 'X-Org' }));
  expect(incomplete({ ...draft, attributes: twice })).toEqual({ '/attributes': 'has org more than once' });
});

test('JSON that is no object is refused in words', () => {
  expect(read('[]').error).toBe('must be a JSON object, in braces');
  expect(read('{').error).toMatch(/^is not JSON: /);
});

test('a mapping in words says what is hashed, and who is trusted', () => {
  expect(described(full)).toMatchObject({
    User: 'header X-Api-Key, as it is',
    Cost: 'query parameter limit or 0',
  });
  expect(described({ user: { header: 'X-Api-Key' } })).toMatchObject({
    User: 'header X-Api-Key, hashed',
    Cost: '1',
    Tokens: 'not read',
  });
});

test('a sample is sent as a proxy passes it on', () => {
  const typed = {
    method: 'GET',
    url: 'https://a.example/x?y=1#z',
    headers: 'X-A: b:c\n\nX-B:',
    claims: '{"sub":"7"}',
  };
  expect(sampleOf(typed, { jwt: {} }).sample).toEqual({
    method: 'GET',
    uri: '/x?y=1',
    headers: [
      { name: 'X-A', value: 'b:c' },
      { name: 'X-B', value: '' },
    ],
    mapping: { jwt: {} },
    claims: { sub: '7' },
  });
  expect(sampleOf(typed, {}).sample?.claims).toBeUndefined();
  expect(sampleOf({ ...typed, headers: 'nothing' }, {}).errors.headers).toMatch(/Name: value/);
  expect(sampleOf({ ...typed, claims: '[1]' }, { jwt: {} }).errors.claims).toMatch(/JSON object/);
});
