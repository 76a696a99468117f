import { MantineProvider } from '@mantine/core';
import { createMemoryHistory } from '@tanstack/react-router';
import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { App } from '~/App';
import { newQueryClient } from '~/api/queries';
import { newRouter } from '~/routes';
import { theme } from '~/theme/theme';

/** Opens an address of the whole product, as a browser would. */
export function open(path: string) {
  const queries = newQueryClient();
  const router = newRouter(queries);
  router.update({ history: createMemoryHistory({ initialEntries: [path] }), context: { queries } });
  render(<App queries={queries} router={router} env="test" />);
  return { router, queries, user: userEvent.setup() };
}

export function show(component: React.ReactNode) {
  const view = render(component, {
    wrapper: ({ children }) => (
      <MantineProvider theme={theme} env="test">
        {children}
      </MantineProvider>
    ),
  });
  return { ...view, user: userEvent.setup() };
}

export { screen };
