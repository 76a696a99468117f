import { expect, test } from 'vitest';
import { key } from '../../test/fake';
import { keyLabel } from './key';

test('keys that share a name are told apart by their ids', () => {
  const old = key({ key_id: 'a', name: 'gateway' });
  const rotated = key({ key_id: 'b', name: 'gateway' });
  const other = key({ key_id: 'c', name: 'billing' });
  const keys = [old, rotated, other];
  expect(keys.map((one) => keyLabel(one, keys))).toEqual(['gateway (a)', 'gateway (b)', 'billing']);
  expect(keyLabel(key({ key_id: 'd', name: '' }), keys)).toBe('d');
});
