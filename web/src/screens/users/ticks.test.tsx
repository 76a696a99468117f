import { act, screen, waitFor } from '@testing-library/react';
import { expect, test, vi } from 'vitest';
import { parsePattern } from '~/domain/pattern';
import { page, rule } from '../../../test/fake';
import { open } from '../../../test/render';
import { user as someUser } from '../../../test/traffic';
import { base, its, tag, userServer } from '../../../test/users';
// Loaded before anything waits: looking for a role in a large page again and again slows the loading of code.
import './UserPage';
import '~/features/temporary/TemporaryRule';

vi.mock('~/domain/pattern', async (load) => {
  const real = await load<typeof import('~/domain/pattern')>();
  return { ...real, parsePattern: vi.fn(real.parsePattern) };
});

test('each second ends what has expired, and reads no pattern of a rule again', async () => {
  const bypass = {
    action: 'bypass',
    plan: null,
    expires_at: new Date(Date.now() + 3_600_000).toISOString(),
  } as const;
  userServer({
    [`GET ${base}/rules`]: page([
      rule({ ...bypass, rule_id: 21, key_pattern: 'user:42' }),
      rule({ ...bypass, rule_id: 22, key_pattern: 'user:7', expires_at: null }),
    ]),
    [`GET ${its}`]: () => ({ json: someUser(), headers: tag }),
  });
  const timers = vi.spyOn(globalThis, 'setInterval');
  const { user } = open('/t/acme/users/42');
  await screen.findByRole('heading', { name: 'At present' });
  await user.click(screen.getByRole('button', { name: 'Block or let through' }));
  await user.click(await screen.findByRole('menuitem', { name: /^Block/ }));
  const dialog = await screen.findByRole('dialog', { name: 'Block user 42' });
  await waitFor(() => expect(dialog.textContent).toMatch(/No effect now/));

  const readOfAnother = () => vi.mocked(parsePattern).mock.calls.filter(([text]) => text === 'user:7').length;
  const before = readOfAnother();
  expect(before).toBeGreaterThan(0);
  const later = Date.now() + 7_200_000;
  vi.spyOn(Date, 'now').mockReturnValue(later);
  act(() => {
    for (const [tick, every] of timers.mock.calls) if (every === 1000) (tick as () => void)();
  });
  expect(dialog.textContent).toMatch(/Every check of this user is denied\./);
  expect(screen.queryByRole('heading', { name: 'At present', hidden: true })).toBeNull();
  expect(readOfAnother()).toBe(before);
});
