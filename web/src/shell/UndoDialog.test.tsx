import { act, screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { sessionKey } from '~/api/queries';
import { undoOf } from '~/api/undo';
import { fakeServer, problem, session } from '../../test/fake';
import { open } from '../../test/render';

test('the dialog that undoes a save leads to other pages, and ends with the session', async () => {
  fakeServer({ 'GET /api/v1/tenants/acme/audit': () => problem(403, 'second-factor-required') });
  const { queries } = open('/nowhere');
  await screen.findByText('This page does not exist.');
  act(() => {
    queries.setQueryData(sessionKey, session());
    undoOf('acme', new Response(null, { headers: { 'X-Request-Id': 'r1' } }))?.run();
  });
  const link = await screen.findByRole('link', { name: 'Set up on your profile' });
  expect(link.getAttribute('href')).toBe('/profile');
  act(() => void queries.setQueryData(sessionKey, null));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  act(() => void queries.setQueryData(sessionKey, session()));
  expect(screen.queryByRole('dialog')).toBeNull();
});
