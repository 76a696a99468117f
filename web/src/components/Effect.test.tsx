import { QueryClientProvider } from '@tanstack/react-query';
import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { newQueryClient } from '~/api/queries';
import type { EffectQuestion as Question } from '~/api/types';
import { shortTime } from '~/domain/format';
import { effect, fakeServer } from '../../test/fake';
import { show } from '../../test/render';
import { Effect, EffectLine } from './Effect';

test('figures of an earlier question are marked, and never stand beside another user', async () => {
  const answers: (() => void)[] = [];
  fakeServer({
    'POST /api/v1/tenants/acme/effect': async ({ body }: { body: Question }) => {
      await new Promise<void>((resolve) => answers.push(resolve));
      const newly_denied = { value: body.override?.burst_capacity ?? 0, error: 0 };
      const range = { since: '2026-11-20T06:00:00Z', until: '2026-11-21T06:00:00Z' };
      return { json: effect({ is_recording: true, ...range, newly_denied }) };
    },
  });
  const queries = newQueryClient();
  const of = (user_id: string, burst_capacity: number) => (
    <QueryClientProvider client={queries}>
      <Effect tenant="acme" question={{ override: { rule_id: '12', user_id, burst_capacity } }} />
    </QueryClientProvider>
  );
  const shown = () => {
    const found = screen.queryByRole('status', { name: 'Effect' });
    const [, figure] = /denied (\d+) more/.exec(found?.textContent ?? '') ?? [];
    return found && `${figure}${found.getAttribute('aria-busy') === 'true' ? ', outdated' : ''}`;
  };
  const { rerender } = show(of('4', 777));
  await waitFor(() => expect(answers).toHaveLength(1));
  answers[0]?.();
  await waitFor(() => expect(shown()).toBe('777'));

  rerender(of('4', 20));
  expect(shown()).toBe('777, outdated');
  await waitFor(() => expect(answers).toHaveLength(2));
  expect(shown()).toBe('777, outdated');
  answers[1]?.();
  await waitFor(() => expect(shown()).toBe('20'));

  rerender(of('42', 20));
  expect(shown()).toBeNull();
  expect(screen.getByText('Replaying the last day…')).toBeDefined();
  await waitFor(() => expect(answers).toHaveLength(3));
  expect(shown()).toBeNull();
  answers[2]?.();
  await waitFor(() => expect(shown()).toBe('20'));
});

test('a user without recorded checks is said with the beginning of the time, in the chosen zone', async () => {
  const none_since = '2026-11-20T06:00:00Z';
  fakeServer({ 'POST /api/v1/tenants/acme/effect': effect({ is_recording: true, none_since }) });
  show(
    <QueryClientProvider client={newQueryClient()}>
      <Effect tenant="acme" question={{ override: { rule_id: '12', user_id: '4', burst_capacity: 7 } }} />
    </QueryClientProvider>,
  );
  const time = shortTime(Date.parse(none_since));
  expect(await screen.findByText(`No checks of this user were recorded since ${time}.`)).toBeDefined();
});

test('an estimate that says too little is asked for again with more checks, and is not shown', async () => {
  const requests = fakeServer({
    'POST /api/v1/tenants/acme/effect': ({ body }: { body: Question }) => ({
      json: effect({
        is_recording: true,
        since: '2026-11-20T06:00:00Z',
        until: '2026-11-21T06:00:00Z',
        newly_denied: body.most_checks ? { value: 30_000, error: 9_000 } : { value: 30_048, error: 57_069 },
      }),
    }),
  });
  show(
    <QueryClientProvider client={newQueryClient()}>
      <Effect tenant="acme" question={{ rules: [] }} />
    </QueryClientProvider>,
  );
  const shown = await screen.findByRole('status', { name: 'Effect' });
  expect(shown.textContent).toBe('Too few recorded checks looked at.');
  await waitFor(() => expect(shown.textContent).toMatch(/denied 30,000 ± 9,000 more\.$/));
  expect(requests.map(({ body }) => (body as Question).most_checks)).toEqual([undefined, 1_000_000]);
});

const counted = (value: number, error = 0) => ({ value, error });
const affected = [{ user_id: '7', ip: null, newly_denied: 5, no_longer_denied: 0 }];
const left_out = [{ rule_id: '7', rule: 'user:{user_id} [pro]', why: 'it leases' }];

test.each([
  ['none', {}, 'decided none otherwise.', 'none of 100 recorded checks decided otherwise'],
  [
    'none, a rule left out',
    { left_out },
    'decided none otherwise. Not replayed: “Each user · pro”, because it leases; recorded denials stand.',
    'none of 100 recorded checks decided otherwise',
  ],
  [
    'more',
    { newly_denied: counted(5), users: affected },
    'denied 5 more. Most affected: 7 (+5).',
    '5 more denied of 100 recorded checks',
  ],
  [
    'fewer, by an estimate',
    { newly_denied: counted(1, 0.2), no_longer_denied: counted(11, 1) },
    'denied 10 ± 2 fewer.',
    '10 ± 2 fewer denied of 100 recorded checks',
  ],
  [
    'as many',
    { newly_denied: counted(5), no_longer_denied: counted(5), users: affected },
    'denied as many, but others. Most affected: 7 (+5).',
    'as many, but others denied of 100 recorded checks',
  ],
  [
    'too uncertain, so that no figure of it is shown',
    { newly_denied: counted(5, 9), users: affected, bound_by: '12' },
    'Too few recorded checks looked at.',
    'Too few recorded checks looked at.',
  ],
  [
    'none, of a sample that says too little',
    { newly_denied: counted(0, 3), users: affected },
    'Too few recorded checks looked at.',
    'Too few recorded checks looked at.',
  ],
])('the effect in words: %s', async (_, answer, words, line) => {
  const range = { since: '2026-11-20T06:00:00Z', until: '2026-11-21T06:00:00Z' };
  fakeServer({
    'POST /api/v1/tenants/acme/effect': effect({ is_recording: true, checks: counted(100), ...range, ...answer }),
  });
  show(
    <QueryClientProvider client={newQueryClient()}>
      <EffectLine tenant="acme" question={{ rules: [] }}>
        {null}
      </EffectLine>
    </QueryClientProvider>,
  );
  const shown = await screen.findByRole('status', { name: 'Effect', hidden: true });
  const said = shown.textContent?.replace(/^Of 100 checks recorded from .*, this change would have /, '');
  expect(said).toBe(words);
  expect(document.querySelector('summary')?.textContent).toBe(`Effect: ${line}`);
});
