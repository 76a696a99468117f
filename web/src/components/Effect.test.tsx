import { QueryClientProvider } from '@tanstack/react-query';
import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { newQueryClient } from '~/api/queries';
import type { components } from '~/api/schema';
import { shortTime } from '~/domain/format';
import { effect, fakeServer } from '../../test/fake';
import { show } from '../../test/render';
import { Effect } from './Effect';

type Question = components['schemas']['EffectQuestion'];

test('figures of an earlier question are marked, and never stand beside another user', async () => {
  const answers: (() => void)[] = [];
  const requests = fakeServer({
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
  await waitFor(() => expect(requests).toHaveLength(1));
  answers[0]?.();
  await waitFor(() => expect(shown()).toBe('777'));

  rerender(of('4', 20));
  expect(shown()).toBe('777, outdated');
  await waitFor(() => expect(requests).toHaveLength(2));
  expect(shown()).toBe('777, outdated');
  answers[1]?.();
  await waitFor(() => expect(shown()).toBe('20'));

  rerender(of('42', 20));
  expect(shown()).toBeNull();
  expect(screen.getByText('Replaying the last day…')).toBeDefined();
  await waitFor(() => expect(requests).toHaveLength(3));
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
