import { act, screen, waitFor } from '@testing-library/react';
import { afterAll, expect, test, vi } from 'vitest';
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
afterAll(() => {
  vi.doUnmock('~/domain/pattern'); // other files share this one's process
});

test('each second ends what has expired, and reads no pattern of a rule again', async () => {
  const bypass = {
    action: 'bypass',
    plan: null,
    expires_at: new Date(Date.now() + 3_600_000).toISOString(),
  } as const;
  userServer({
    [`GET ${base}/rules`]: page([
      rule({ ...bypass, rule_id: '21', key_pattern: 'user:42' }),
      rule({ ...bypass, rule_id: '22', key_pattern: 'user:7', expires_at: null }),
    ]),
    [`GET ${its}`]: () => ({ json: someUser(), headers: tag }),
  });
  // The seconds pass when the test says so: on a busy machine each one would draw the page anew before the dialog came.
  const ticks: (() => void)[] = [];
  const { setInterval } = globalThis;
  vi.spyOn(globalThis, 'setInterval').mockImplementation(((tick: () => void, every: number) => {
    if (every !== 1000) return setInterval(tick, every);
    ticks.push(tick);
    return 0;
  }) as unknown as typeof setInterval);
  const { user } = open('/t/acme/users/42');
  // By text: looking for a role in so large a page again and again leaves React no time to show the dialog.
  await screen.findByText('At present');
  await user.click(screen.getByText('Block or let through'));
  await user.click(await screen.findByText(/^Block …/));
  const dialog = (await screen.findByText('Block user 42')).closest('[role="dialog"]') as HTMLElement;
  await waitFor(() => expect(dialog.textContent).toMatch(/No effect now/));

  const readOfAnother = () => vi.mocked(parsePattern).mock.calls.filter(([text]) => text === 'user:7').length;
  const before = readOfAnother();
  expect(before).toBeGreaterThan(0);
  const later = Date.now() + 7_200_000;
  vi.spyOn(Date, 'now').mockReturnValue(later);
  act(() => {
    for (const tick of ticks) tick();
  });
  expect(dialog.textContent).toMatch(/Every check of this user is denied\./);
  expect(screen.queryByText('At present')).toBeNull();
  expect(readOfAnother()).toBe(before);
});
