import { expect, test } from 'vitest';
import type { DescriptorMapping } from '~/api/types';
import { described, draftOf, formCovers, incomplete, mappingOf, same } from './descriptorDraft';
import { descriptorsOf } from './descriptorSample';

const full: DescriptorMapping = {
  keys: { customer: 'user_id', 'a=b': 'endpoint' },
  domains: {
    edge: {
      templates: [['route=login', 'remote_address'], ['route=files*'], ['route']],
      replaces: { 'route=login,remote_address': ['route', 'route=files*'] },
    },
    plain: {},
  },
};

test.each<[string, DescriptorMapping]>([
  ['everything', full],
  ['nothing', {}],
])('the form keeps a mapping of %s', (_, mapping) => {
  expect(mappingOf(draftOf(mapping))).toEqual(mapping);
  expect(formCovers(mapping)).toBe(true);
});

test.each<[string, unknown]>([
  ['a field that it does not know', { domains: { d: { salt: 1 } } }],
  ['a comma within a step', { domains: { d: { templates: [['a=1,2']] } } }],
  ['a field of another type', { domains: { d: { templates: 'a' } } }],
  ['a null', { keys: null, domains: 5 }],
])('the form does not cover %s', (_, mapping) => {
  expect(formCovers(mapping as DescriptorMapping)).toBe(false);
});

test('a mapping is the same in another order, and a domain without templates is a difference', () => {
  expect(same({ keys: { a: 'ip', b: 'plan' } }, { keys: { b: 'plan', a: 'ip' }, domains: {} })).toBe(true);
  expect(same({ domains: { d: {} } }, { domains: { d: { templates: [] } } })).toBe(true);
  expect(same({ domains: { d: {} } }, {})).toBe(false);
  expect(
    same(
      { domains: { d: { templates: [['a'], ['b']] } } },
      { domains: { d: { templates: [['b'], ['a']] } } },
    ),
  ).toBe(false);
});

test('what is written twice or without a field is not dropped in silence', () => {
  const draft = draftOf(full);
  expect(incomplete(draft)).toEqual({});
  expect(incomplete({ ...draft, domains: [...draft.domains, ...draft.domains] })['/domains']).toBe(
    'has edge more than once',
  );
  expect(incomplete({ ...draft, keys: 'customer' })['/keys']).toMatch(/key = field.*“customer” is not/);
});

test('a mapping in words has a line for each domain', () => {
  expect(described({})).toEqual({ Keys: 'the default ones' });
  expect(described(full)).toMatchObject({
    'Domain plain': 'without templates',
    'Domain edge': expect.stringContaining('route=login,remote_address > route'),
  });
});

test('descriptors are read from lines and from JSON', () => {
  const typed = { domain: ' edge ', descriptors: 'route=login, remote_address=::1\n\nquery=a=b' };
  expect(descriptorsOf(typed, undefined).sample).toEqual({
    domain: 'edge',
    descriptors: [
      {
        entries: [
          { key: 'route', value: 'login' },
          { key: 'remote_address', value: '::1' },
        ],
      },
      { entries: [{ key: 'query', value: 'a=b' }] },
    ],
  });
  const json =
    '{"domain": "other", "hitsAddend": 3, "descriptors": [{"entries": [{"key": "a", "value": "b,c"}]}]}';
  expect(descriptorsOf({ ...typed, descriptors: json }, {}).sample).toEqual({
    domain: 'other',
    hits_addend: 3,
    descriptors: [{ entries: [{ key: 'a', value: 'b,c' }] }],
    mapping: {},
  });
  for (const [descriptors, error] of [
    ['=x', /“=x” is not/],
    ['', /on each line/],
    ['{', /is not JSON/],
    ['{}', /list of descriptors/],
  ] as const) {
    expect(descriptorsOf({ ...typed, descriptors }, {}).error).toMatch(error);
  }
});
