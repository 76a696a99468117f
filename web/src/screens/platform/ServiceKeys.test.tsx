import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';
import { account, fakeServer, key, page, session } from '../../../test/fake';
import { open } from '../../../test/render';

test('a service key whose creator has left is kept', async () => {
  const left = key({ key_id: 'svc1', name: 'terraform', creator_left: true });
  let keptAt: string | null = null;
  const requests = fakeServer({
    'GET /api/v1/session': { ...session(), account: account({ platform_admin: true }) },
    'GET /api/v1/service-keys': () => ({ json: page([{ ...left, kept_at: keptAt }]) }),
    'POST /api/v1/service-keys/svc1/keep': () => {
      keptAt = '2026-11-20T12:00:00Z';
      return { json: { ...left, kept_at: keptAt } };
    },
  });
  const { user } = open('/platform/service-keys');
  await user.click(await screen.findByRole('button', { name: 'Keep terraform' }));
  await waitFor(() => expect(screen.queryByText(/people who have left/)).toBeNull());
  expect(await screen.findByText('has left; kept')).toBeDefined();
  const sent = requests.find(({ method }) => method === 'POST');
  expect(sent?.headers.get('If-Match')).toBe(`"${left.version}"`);
});
