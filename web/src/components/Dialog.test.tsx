import { MantineProvider, TextInput } from '@mantine/core';
import { QueryClientProvider } from '@tanstack/react-query';
import {
  createBrowserHistory,
  createMemoryHistory,
  createRootRoute,
  createRouter,
  RouterProvider,
} from '@tanstack/react-router';
import { act, render, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { useState } from 'react';
import { expect, test } from 'vitest';
import { newQueryClient } from '~/api/queries';
import { parseSearch, stringifySearch } from '~/search';
import { Dialog } from './Dialog';
import { FormDialog } from './FormDialog';
import { Leaving } from './Leaving';
import { usePanel } from './usePanel';

function begin(Page: () => React.ReactNode, history = createMemoryHistory({ initialEntries: ['/here'] })) {
  const router = createRouter({
    routeTree: createRootRoute({ component: Page, notFoundComponent: Page }),
    history,
    parseSearch,
    stringifySearch,
  });
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={newQueryClient()}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const leave = () => act(() => router.history.push('/there'));
  return { router, leave, user: userEvent.setup() };
}

const question = () => screen.findByRole('dialog', { name: 'Leave without saving?' });
const questions = () => screen.queryAllByRole('dialog', { name: 'Leave without saving?' });
const discards = () => screen.queryAllByText('Discard your edits?');

test('leaving asks about what was typed into a dialog, also after its save failed', async () => {
  const { leave, user } = begin(() => (
    <FormDialog
      title="New key"
      verb="Create"
      onClose={() => undefined}
      save={() => Promise.reject(new Error('Refused.'))}
    >
      {() => <TextInput label="Name" />}
    </FormDialog>
  ));
  await user.type(await screen.findByLabelText('Name'), 'gateway{Enter}');
  await screen.findByText('Refused.');
  leave();
  expect((await question()).textContent).toContain('What you typed will be lost');
});

test('leaving asks about what was typed into a dialog, also after its form refused it', async () => {
  const { leave, user } = begin(() => (
    <Dialog title="New override" onClose={() => undefined}>
      <form onSubmit={(event) => event.preventDefault()}>
        <TextInput label="Reason" />
      </form>
    </Dialog>
  ));
  await user.type(await screen.findByLabelText('Reason'), 'x{Enter}');
  leave();
  expect(await question()).toBeDefined();
});

function Override() {
  const show = usePanel<string>('override');
  const isOpen = location.search.includes('override');
  return (
    <>
      <button type="button" onClick={() => show('12')}>
        New override
      </button>
      {isOpen && (
        <Dialog title="Override" onClose={() => show(undefined)}>
          <TextInput label="Reason" />
          <button type="button" onClick={() => show(undefined)}>
            Cancel
          </button>
        </Dialog>
      )}
    </>
  );
}

test('back asks before it closes a dialog that has edits; its own button does not', async () => {
  window.history.replaceState(null, '', '/here');
  const history = createBrowserHistory();
  const { user } = begin(Override, history);
  await user.click(await screen.findByRole('button', { name: 'New override' }));
  await user.type(await screen.findByLabelText('Reason'), 'migration');
  act(() => window.history.back());
  await user.click(within(await question()).getByRole('button', { name: 'Stay' }));
  await waitFor(() => expect(questions()).toEqual([]));
  expect(screen.getByLabelText('Reason')).toHaveProperty('value', 'migration');
  await waitFor(() => expect(location.search).toBe('?override=12'));
  await user.click(screen.getByRole('button', { name: 'Cancel' }));
  await waitFor(() => expect(screen.queryByLabelText('Reason')).toBeNull());
  expect(questions()).toEqual([]);
  expect(location.search).toBe('');
  history.destroy();
});

function Nested() {
  const [opened, setOpened] = useState({ outer: true, inner: true });
  return (
    <>
      <Leaving when what="1 change" />
      {opened.outer && (
        <Dialog title="Review" onClose={() => setOpened({ outer: false, inner: false })}>
          <TextInput label="Comment" />
          {opened.inner && (
            <Dialog title="Schedule" onClose={() => setOpened({ outer: true, inner: false })}>
              <TextInput label="Start" />
            </Dialog>
          )}
        </Dialog>
      )}
    </>
  );
}

test('Escape acts in the topmost dialog alone', async () => {
  const { user } = begin(Nested);
  await user.type(await screen.findByLabelText('Start'), '9');
  await user.keyboard('{Escape}');
  expect(discards()).toHaveLength(1);
  await user.click(screen.getByRole('button', { name: 'Discard edits' }));
  await waitFor(() => expect(screen.queryByRole('dialog', { name: 'Schedule' })).toBeNull());
  expect(screen.getByRole('dialog', { name: 'Review' })).toBeDefined();
  await user.keyboard('{Escape}');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
});

test('leaving asks once about all drafts of a page, and Escape stays', async () => {
  const { router, leave, user } = begin(Nested);
  await user.type(await screen.findByLabelText('Start'), '9');
  leave();
  expect((await question()).textContent).toContain('1 change and what you typed will be lost.');
  expect(questions()).toHaveLength(1);
  await user.keyboard('{Escape}');
  await waitFor(() => expect(questions()).toEqual([]));
  expect(discards()).toEqual([]);
  expect(router.history.location.pathname).toBe('/here');
  leave();
  await user.click(within(await question()).getByRole('button', { name: 'Leave' }));
  await waitFor(() => expect(router.history.location.pathname).toBe('/there'));
  expect(questions()).toEqual([]);
});
