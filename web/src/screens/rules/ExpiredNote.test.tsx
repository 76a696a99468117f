import { screen } from '@testing-library/react';
import { expect, test } from 'vitest';
import { shortTime } from '~/domain/format';
import { fakeServer, page, rule } from '../../../test/fake';
import { open } from '../../../test/render';
import { live, world } from '../../../test/rules';

const day = 86_400_000;
const ago = (ms: number) => new Date(Date.now() - ms).toISOString();

function server(expires_at: string, updated_at: string, more: Record<string, unknown> = {}) {
  const ended = rule({ rule_id: '1', expires_at, updated_at });
  fakeServer({ ...world('editor', ended), 'GET /api/v1/tenants/acme/scheduled-changes': page([]), ...more });
  open('/t/acme/rules/1');
  return screen.findByRole('note');
}

test('a rule that ended says when it is removed: 7 days after its end', async () => {
  const end = ago(2 * day);
  const note = await server(end, ago(9 * day));
  expect(note.textContent).toMatch(/ended 2\sdays ago/);
  expect(note.textContent).toContain(`removed on ${shortTime(Date.parse(end) + 7 * day)}`);
});

test('an edit after the end begins the 7 days anew', async () => {
  const edit = ago(day);
  const note = await server(ago(9 * day), edit);
  expect(note.textContent).toContain(`removed on ${shortTime(Date.parse(edit) + 7 * day)}`);
});

test('a candidate keeps a rule that ended', async () => {
  const candidate = rule({ rule_id: '9', name: 'candidate', mode: 'shadow', candidate_for: '1' });
  const note = await server(ago(9 * day), ago(9 * day), {
    'GET /api/v1/tenants/acme/rules': page([live, candidate]),
  });
  await screen.findByText(/It is kept while it has a candidate/);
  expect(note.textContent).not.toContain('will be removed');
});

test('a rule with an end to come has no such note', async () => {
  const coming = rule({ rule_id: '1', expires_at: ago(-day) });
  fakeServer(world('editor', coming));
  open('/t/acme/rules/1');
  expect(await screen.findByLabelText('Burst')).toBeDefined();
  expect(screen.queryByRole('note')).toBeNull();
});

test('a rule that no descriptor meets says so', async () => {
  fakeServer(world('editor', rule({ rule_id: '1', no_descriptor: true })));
  open('/t/acme/rules/1');
  expect((await screen.findByRole('note')).textContent).toMatch(/^No descriptor meets this rule/);
});
