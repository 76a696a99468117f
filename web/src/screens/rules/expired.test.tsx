import { screen } from '@testing-library/react';
import { expect, test } from 'vitest';
import { fakeServer, page, rule, session } from '../../../test/fake';
import { open } from '../../../test/render';

test('whether a rule has ended is decided by the clock of the server, not by that of the browser', async () => {
  const hour = 3_600_000;
  const inHalfAnHour = new Date(Date.now() + hour / 2).toISOString();
  fakeServer({
    'GET /api/v1/session': session(),
    'GET /api/v1/tenants/acme/plans': page([]),
    'GET /api/v1/tenants/acme/scheduled-changes': page([]),
    'GET /api/v1/tenants/acme/rules': () => ({
      json: page([rule({ expires_at: inHalfAnHour })]),
      headers: { Date: new Date(Date.now() + hour).toUTCString() },
    }),
  });
  open('/t/acme/rules');
  expect(await screen.findByText('Expired')).toBeDefined();
});
