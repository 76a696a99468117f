import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';
import { effect, problem, requested } from '../../../test/fake';
import { open } from '../../../test/render';
import { override, user as someUser, violation } from '../../../test/traffic';
import { base, its, tag, userServer } from '../../../test/users';

test('an override has a reason and an end, and says its effect before it is saved', async () => {
  const before = Date.now();
  const figure = (value: number) => ({ value, error: 0 });
  const requests = userServer({
    [`PUT ${base}/rules/12/overrides/42`]: () => ({ status: 201, json: override() }),
    [`POST ${base}/effect`]: effect({
      is_recording: true,
      since: '2026-11-20T06:00:00Z',
      until: '2026-11-20T07:30:00Z',
      checks: figure(1200),
      denied_then: figure(40),
      denied_now: figure(6),
      no_longer_denied: figure(34),
    }),
  });
  const { user, router } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'New override' }));
  const dialog = await screen.findByRole('dialog', { name: 'New override for user 42' });
  const give = within(dialog).getByRole('button', { name: 'Save override' });
  await user.click(give);
  const reason = within(dialog).getByLabelText(/^Reason/);
  expect(reason).toHaveProperty('validity.valueMissing', true); // the browser points at it
  expect(requests.some(({ method }) => method === 'PUT')).toBe(false);
  await user.click(within(dialog).getByText('10 times'));
  await user.click(reason);
  await user.paste('migration week');
  expect(dialog.textContent).toMatch(
    /User 42 gets 100 per second, bursts to 500 instead of 10 per second, bursts to 50, until/,
  );
  await waitFor(() =>
    expect(requests.findLast(({ path }) => path.endsWith('/effect'))?.body).toEqual({
      override: { rule_id: '12', user_id: '42', rate_per_second: 100, burst_capacity: 500 },
    }),
  );
  expect((await within(dialog).findByLabelText('Effect')).textContent).toMatch(
    /Of 1,200 checks recorded from 20 Nov, 06:00 to 20 Nov, 07:30 UTC, this change would have denied 34 fewer\.$/,
  );
  await user.click(give);
  await waitFor(() => expect(screen.queryByRole('dialog', { name: /New override/ })).toBeNull());
  const sent = requests.find(({ method }) => method === 'PUT');
  expect(sent?.headers.get('If-None-Match')).toBe('*');
  const { expires_at, ...limit } = (sent?.body ?? {}) as { expires_at: string };
  expect(limit).toEqual({
    rate_per_second: 100,
    rate_unit: 'second',
    burst_capacity: 500,
    reason: 'migration week',
  });
  const day = 86_400_000;
  expect(Date.parse(expires_at) - before).toBeGreaterThanOrEqual(day);
  expect(Date.parse(expires_at) - before).toBeLessThan(day + 60_000);
  expect(router.state.location.search).toEqual({});
});

test('the rule that denied is offered, also one of another plan, and what it does is said', async () => {
  userServer();
  const { user } = open('/t/acme/users/42?override=13');
  const choice = await screen.findByLabelText('Rule');
  expect(choice).toHaveProperty('value', '13');
  const dialog = screen.getByRole('dialog', { name: 'New override for user 42' });
  const labels = within(choice).getAllByRole('option');
  expect(labels.map(({ textContent }) => textContent)).toEqual(['Each user · free', 'Each user · pro']);
  await user.type(within(dialog).getByLabelText(/^Reason/), 'ticket');
  expect(dialog.textContent).toMatch(/User 42 is on free, so the override applies only to checks on the plan pro/);
});

test('an override cannot end in the past, and Save points at the field that is wrong', async () => {
  const requests = userServer();
  const { user } = open('/t/acme/users/42?override=12');
  await user.type(await screen.findByLabelText(/^Reason/), 'ticket');
  await user.selectOptions(screen.getByLabelText('Duration'), 'Until a date');
  const until = screen.getByLabelText('Until');
  expect(screen.queryByText('Choose a time in the future.')).toBeNull();
  fireEvent.change(until, { target: { value: '2020-01-01T00:00' } });
  expect(screen.getByText('Choose a time in the future.')).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Save override' }));
  expect(document.activeElement).toBe(until);
  expect(requests.some(({ method }) => method === 'PUT')).toBe(false);
});

test('an override until tonight ends at midnight, and says when that is', async () => {
  const requests = userServer({ [`PUT ${base}/rules/12/overrides/42`]: () => ({ json: override() }) });
  const { user } = open('/t/acme/users/42?override=12');
  await user.type(await screen.findByLabelText(/^Reason/), 'ticket');
  await user.selectOptions(screen.getByLabelText('Duration'), 'Until tonight');
  expect(screen.getByText(/^Ends \d+ \w+, 00:00 /)).toBeDefined();
  await user.click(screen.getByRole('button', { name: 'Save override' }));
  expect((await requested(requests, 'PUT')).body).toMatchObject({
    expires_at: new Date(new Date().setHours(24, 0, 0, 0)).toISOString(),
  });
});

test('a rule that cannot be overridden is never replaced by another without a word', async () => {
  userServer();
  open('/t/acme/users/42?override=14');
  expect(await screen.findByText('Rule 14 cannot be overridden for one user. This is another rule.')).toBeDefined();
});

test('the button offers the rule that denied last', async () => {
  userServer({
    [`GET ${its}`]: () => ({
      json: someUser({ recent_violations: [violation({ rule_id: '13', plan: 'pro' })] }),
      headers: tag,
    }),
  });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'New override' }));
  expect(await screen.findByLabelText('Rule')).toHaveProperty('value', '13');
});

test('an end that nobody changed is saved to the second', async () => {
  const expires_at = '2027-12-01T12:34:56.789Z';
  const requests = userServer({ [`PUT ${base}/rules/12/overrides/42`]: () => ({ json: override() }) }, () => [
    override({ expires_at }),
  ]);
  const { user } = open('/t/acme/users/42?override=12');
  await user.retype(await screen.findByLabelText(/^Reason/), 'another reason');
  await user.click(screen.getByRole('button', { name: 'Save override' }));
  expect((await requested(requests, 'PUT')).body).toMatchObject({ expires_at });
});

test('a lost race shows both overrides, and mine can be saved over theirs', async () => {
  const tags: (string | null)[] = [];
  userServer({
    [`GET ${base}/rules/12/overrides/42`]: override({ reason: 'theirs', version: 32 }),
    [`PUT ${base}/rules/12/overrides/42`]: ({ headers }: { headers: Headers }) => {
      tags.push(headers.get('If-Match') ?? headers.get('If-None-Match'));
      return tags.length > 1 ? { json: override() } : problem(412, 'precondition-failed');
    },
  });
  const { user } = open('/t/acme/users/42?override=12');
  await user.type(await screen.findByLabelText(/^Reason/), 'mine');
  await user.click(screen.getByRole('button', { name: 'Save override' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed the override/ });
  expect(within(dialog).getByRole('row', { name: 'Reason theirs mine' })).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(tags).toEqual(['*', '"32"']));
});

async function askRemoval() {
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'Actions for the override of user 42' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Remove' }));
  return { user, dialog: await screen.findByRole('dialog', { name: 'Remove this override?' }) };
}

test('an override can be removed, after its effect was said', async () => {
  const requests = userServer({ [`DELETE ${base}/rules/12/overrides/42`]: () => ({ status: 204 }) }, () => [
    override(),
  ]);
  const { user, dialog } = await askRemoval();
  expect(dialog.textContent).toMatch(/from 100 per second, bursts to 500 to 10 per second, bursts to 50 within 2 s/);
  await user.click(within(dialog).getByRole('button', { name: 'Remove override' }));
  expect((await requested(requests, 'DELETE')).headers.get('If-Match')).toBe('"31"');
});

test('removing an override that somebody changed asks again with their version', async () => {
  const tags: (string | null)[] = [];
  let stored = [override()];
  userServer(
    {
      [`DELETE ${base}/rules/12/overrides/42`]: ({ headers }: { headers: Headers }) => {
        tags.push(headers.get('If-Match'));
        if (tags.length > 1) return { status: 204 };
        stored = [override({ version: 32, rate_per_second: 70 })];
        return problem(412, 'precondition-failed');
      },
    },
    () => stored,
  );
  const { user, dialog } = await askRemoval();
  await user.click(within(dialog).getByRole('button', { name: 'Remove override' }));
  expect(await within(dialog).findByText(/from 70 per second/)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Remove override' }));
  await waitFor(() => expect(tags).toEqual(['"31"', '"32"']));
});

test.each([404, 412])('removing an override that somebody removed says so, after a %s', async (status) => {
  let stored = [override()];
  const kind = status === 404 ? 'not-found' : 'precondition-failed';
  const requests = userServer(
    {
      [`DELETE ${base}/rules/12/overrides/42`]: () => {
        stored = [];
        return problem(status, kind);
      },
    },
    () => stored,
  );
  const { user, dialog } = await askRemoval();
  await user.click(within(dialog).getByRole('button', { name: 'Remove override' }));
  expect(await within(dialog).findByText('Someone already removed it.')).toBeDefined();
  expect(within(dialog).getByRole('button', { name: 'Remove override' })).toHaveProperty('disabled', true);
  await user.click(within(dialog).getAllByRole('button', { name: 'Close' }).at(-1) as HTMLElement);
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.filter(({ method }) => method === 'DELETE')).toHaveLength(1);
});

test('an override that somebody removed while it was edited can be given again', async () => {
  const tags: (string | null)[] = [];
  userServer(
    {
      [`GET ${base}/rules/12/overrides/42`]: () => problem(404, 'not-found'),
      [`PUT ${base}/rules/12/overrides/42`]: ({ headers }: { headers: Headers }) => {
        tags.push(headers.get('If-Match') ?? headers.get('If-None-Match'));
        return tags.length > 1 ? { status: 201, json: override() } : problem(412, 'precondition-failed');
      },
    },
    () => [override()],
  );
  const { user } = open('/t/acme/users/42?override=12');
  await user.click(await screen.findByRole('button', { name: 'Save override' }));
  const dialog = await screen.findByRole('dialog', { name: /Someone changed the override/ });
  expect(within(dialog).getByText(/^No override: 10 per second/)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Overwrite with mine' }));
  await waitFor(() => expect(tags).toEqual(['"31"', '*']));
});

test('an override that changes nothing is saved only when it was said so', async () => {
  const requests = userServer({ [`PUT ${base}/rules/12/overrides/42`]: () => ({ status: 201, json: override() }) });
  const { user } = open('/t/acme/users/42');
  await user.click(await screen.findByRole('button', { name: 'New override' }));
  const dialog = await screen.findByRole('dialog', { name: 'New override for user 42' });
  await user.click(within(dialog).getByLabelText(/^Reason/));
  await user.paste('a promise');
  await user.retype(within(dialog).getByLabelText('Rate'), '10');
  await user.retype(within(dialog).getByLabelText('Burst'), '50');
  expect(within(dialog).getByText(/This is the rule’s own limit/)).toBeDefined();
  await user.click(within(dialog).getByRole('button', { name: 'Save override' }));
  expect(requests.some(({ method }) => method === 'PUT')).toBe(false);
  await user.click(await within(dialog).findByRole('button', { name: 'Save anyway' }));
  await waitFor(() => expect(requests.some(({ method }) => method === 'PUT')).toBe(true));
});
