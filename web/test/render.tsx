import { MantineProvider } from '@mantine/core';
import { createMemoryHistory } from '@tanstack/react-router';
import { render, screen } from '@testing-library/react';
import userEvent, { PointerEventsCheckLevel } from '@testing-library/user-event';
import { App } from '~/App';
import { newQueryClient } from '~/api/queries';
import { newRouter } from '~/routes';
import { theme } from '~/theme/theme';

// Without styles nothing is covered; to ask for the styles of all ancestors before each click took a tenth of the time.
function newUser() {
  const user = userEvent.setup({ pointerEventsCheck: PointerEventsCheckLevel.Never });
  async function retype(field: Element, text: string) {
    await user.clear(field);
    await user.type(field, text);
  }
  return { ...user, retype };
}

export function open(path: string) {
  const queries = newQueryClient();
  const router = newRouter(queries);
  router.update({ history: createMemoryHistory({ initialEntries: [path] }), context: { queries } });
  render(<App queries={queries} router={router} env="test" />);
  return { router, queries, user: newUser() };
}

export function show(component: React.ReactNode) {
  const view = render(component, {
    wrapper: ({ children }) => (
      <MantineProvider theme={theme} env="test">
        {children}
      </MantineProvider>
    ),
  });
  return { ...view, user: newUser() };
}

export { screen };
