import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';
import { fieldText } from '~/domain/zone';
import { fakeServer, page, problem, requested } from '../../../test/fake';
import { open } from '../../../test/render';
import { live, world } from '../../../test/rules';
import { scheduledChange } from '../../../test/traffic';

const scheduled = scheduledChange();

async function schedule(burst: string) {
  const { user } = open('/t/acme/rules/1');
  await user.retype(await screen.findByLabelText('Burst'), burst);
  await user.click(screen.getByRole('button', { name: 'Schedule' }));
  return { user, dialog: await screen.findByRole('dialog') };
}

async function edit() {
  const { user } = open('/t/acme/rules/1');
  const list = await screen.findByRole('list', { name: 'Scheduled changes' });
  await user.click(within(list).getByRole('button', { name: 'Edit' }));
  return { user, dialog: await screen.findByRole('dialog', { name: 'Edit this scheduled change' }) };
}

test('what was typed is scheduled with its end, for the version that was shown', async () => {
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/scheduled-changes': () => ({ status: 201, json: scheduled }),
  });
  const { user, dialog } = await schedule('80');
  fireEvent.change(within(dialog).getByLabelText(/Starts/), { target: { value: '2026-11-23T09:00' } });
  await user.click(within(dialog).getByRole('checkbox', { name: 'Take it back' }));
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2026-11-23T08:00' } });
  expect(within(dialog).getByRole('button', { name: 'Schedule' })).toHaveProperty('disabled', true);
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2026-11-27T17:00' } });
  await user.click(within(dialog).getByRole('button', { name: 'Schedule' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.find(({ path, method }) => method === 'POST' && path.endsWith('changes'))?.body).toEqual({
    rules: [{ rule_id: '1', version: 3, change: { burst_capacity: 80 } }],
    starts_at: new Date('2026-11-23T09:00').toISOString(),
    ends_at: new Date('2026-11-27T17:00').toISOString(),
  });
  expect(screen.getByLabelText('Burst')).toHaveProperty('value', '50');
});

test('scheduled changes are listed with what became of them, and one that waits is canceled', async () => {
  const failure = 'Somebody edited the rule meanwhile, so nothing was taken back.';
  const edited = {
    ...scheduled,
    change_id: '6',
    rules: [{ rule_id: '1', change: { burst_capacity: 80 }, failure }],
    state: 'edited',
    failure,
  };
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/scheduled-changes': page([scheduled, edited]),
    'POST /api/v1/tenants/acme/scheduled-changes/7/cancel': { ...scheduled, state: 'canceled' },
  });
  const { user } = open('/t/acme/rules/1');
  const list = await screen.findByRole('list', { name: 'Scheduled changes' });
  const [waiting, kept] = within(list).getAllByRole('listitem');
  expect(waiting?.textContent).toMatch(/WaitingBurst: 80.*by ada@example.com/);
  expect(kept?.textContent).toMatch(/^Not taken backBurst: 80Mon 23 Nov.*Somebody edited the rule/);
  await user.click(within(list).getByRole('button', { name: 'Cancel' }));
  await user.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Cancel change' }));
  await waitFor(() => expect(requests.some(({ path }) => path.endsWith('/7/cancel'))).toBe(true));
});

test('a change that waits is edited: another limit and another end take its place', async () => {
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/scheduled-changes': page([scheduled]),
    'POST /api/v1/tenants/acme/scheduled-changes': () => ({ status: 201, json: scheduled }),
  });
  const { user, dialog } = await edit();
  expect(within(dialog).getByLabelText(/Starts/)).toHaveProperty('value', fieldText(Date.parse(scheduled.starts_at)));
  const burst = within(dialog).getByLabelText('Burst');
  expect(burst).toHaveProperty('value', '80');
  await user.retype(burst, '90');
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2026-11-30T17:00' } });
  await user.click(within(dialog).getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.find(({ path, method }) => method === 'POST' && path.endsWith('changes'))?.body).toEqual({
    rules: [{ rule_id: '1', version: 3, change: { burst_capacity: 90 } }],
    starts_at: new Date(scheduled.starts_at).toISOString(),
    ends_at: new Date('2026-11-30T17:00').toISOString(),
    replaces: '7',
  });
});

test('a change of many rules says so on the page of each, and what became of it', async () => {
  const failure = 'Somebody edited the rule meanwhile, so nothing was taken back.';
  const partly = {
    ...scheduled,
    title: '12 limits of pro',
    rules: [
      { rule_id: '1', change: { burst_capacity: 80 }, failure },
      { rule_id: '2', change: { burst_capacity: 90 }, failure: null },
    ],
    state: 'edited',
    failure: '1 of 12 rules was not taken back.',
  };
  fakeServer({ ...world(), 'GET /api/v1/tenants/acme/scheduled-changes': page([partly]) });
  open('/t/acme/rules/1');
  const list = await screen.findByRole('list', { name: 'Scheduled changes' });
  expect(list.textContent).toMatch(
    /Partly taken backBurst: 80One of 12 limits of proSomebody edited the rule.*1 of 12 rules was not taken back/,
  );
});

test('a change can begin now, and then has an end', async () => {
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/scheduled-changes': () => ({
      status: 201,
      json: { ...scheduled, state: 'in_force' },
    }),
  });
  const { user, dialog } = await schedule('80');
  expect(within(dialog).getByRole('checkbox', { name: 'Take it back' })).toHaveProperty('checked', false);
  expect(within(dialog).queryByLabelText(/Ends/)).toBeNull();
  await user.click(within(dialog).getByRole('radio', { name: 'Now, for a time' }));
  expect(within(dialog).queryByLabelText(/Starts/)).toBeNull();
  fireEvent.change(within(dialog).getByLabelText(/Ends/), { target: { value: '2126-11-27T17:00' } });
  await user.click(within(dialog).getByRole('button', { name: 'Change now' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(requests.find(({ path, method }) => method === 'POST' && path.endsWith('changes'))?.body).toEqual({
    rules: [{ rule_id: '1', version: 3, change: { burst_capacity: 80 } }],
    starts_at: null,
    ends_at: new Date('2126-11-27T17:00').toISOString(),
  });
});

test('a change that was chosen elsewhere asks for the limit and schedules it', async () => {
  const requests = fakeServer({
    ...world(),
    'POST /api/v1/tenants/acme/scheduled-changes': () => problem(500, 'internal'),
  });
  const { user } = open('/t/acme/rules/1?open=schedule');
  const dialog = await screen.findByRole('dialog', { name: 'Schedule this change' });
  const submit = within(dialog).getByRole('button', { name: 'Schedule' });
  expect((submit as HTMLButtonElement).disabled).toBe(true);
  await user.retype(within(dialog).getByLabelText('Burst'), '20');
  await user.click(submit);
  expect((await requested(requests, 'POST', '-changes')).body).toMatchObject({
    rules: [{ rule_id: '1', version: 3, change: { burst_capacity: 20 } }],
  });
});

test('what somebody else saves while a change is scheduled is not undone', async () => {
  let saved = live;
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/rules/1': () => ({ json: saved, headers: { ETag: `"${saved.version}"` } }),
    'POST /api/v1/tenants/acme/scheduled-changes': () => problem(412, 'precondition-failed'),
  });
  const { user, queries } = open('/t/acme/rules/1?open=schedule');
  const dialog = await screen.findByRole('dialog', { name: 'Schedule this change' });
  await user.retype(within(dialog).getByLabelText('Burst'), '20');
  saved = { ...live, version: 4, rate_per_second: 30, description: 'for the sale' };
  await queries.invalidateQueries();
  await waitFor(() => expect(document.querySelector('main')?.textContent).toMatch(/30 per second/));
  expect(dialog.textContent).not.toMatch(/Rate:|Description:/);
  await user.click(within(dialog).getByRole('button', { name: 'Schedule' }));
  await within(dialog).findByRole('alert');
  expect(requests.find(({ method, path }) => method === 'POST' && path.endsWith('-changes'))?.body).toMatchObject({
    rules: [{ rule_id: '1', version: 3, change: { burst_capacity: 20 } }],
  });
});

test('the dialog opens and closes without scrolling the page', async () => {
  const scrolled = vi.fn();
  vi.stubGlobal('scrollTo', scrolled);
  fakeServer(world());
  const { user, router } = open('/t/acme/rules/1');
  await user.type(await screen.findByLabelText('Burst'), '0');
  scrolled.mockClear();
  await user.click(screen.getByRole('button', { name: 'Schedule' }));
  const dialog = await screen.findByRole('dialog');
  expect(router.state.location.search).toEqual({ open: 'schedule' });
  await user.click(within(dialog).getByRole('button', { name: 'Cancel' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(scrolled).not.toHaveBeenCalled();
});

test('a time that was not edited stays what it is, to the second', async () => {
  const odd = { ...scheduled, starts_at: '2026-11-30T09:00:42Z', ends_at: '2026-11-30T17:00:07Z' };
  const requests = fakeServer({
    ...world(),
    'GET /api/v1/tenants/acme/scheduled-changes': page([odd]),
    'POST /api/v1/tenants/acme/scheduled-changes': () => ({ status: 201, json: odd }),
  });
  const { user, dialog } = await edit();
  const burst = within(dialog).getByLabelText('Burst');
  await user.retype(burst, '90');
  await user.click(within(dialog).getByRole('button', { name: 'Save' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  const sent = requests.find(({ path, method }) => method === 'POST' && path.endsWith('changes'))?.body;
  expect(sent).toMatchObject({ starts_at: '2026-11-30T09:00:42.000Z', ends_at: '2026-11-30T17:00:07.000Z' });
});
