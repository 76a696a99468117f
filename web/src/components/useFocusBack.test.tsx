import { Button, MantineProvider, Menu } from '@mantine/core';
import { render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { useState } from 'react';
import { expect, test } from 'vitest';
import { Dialog } from './Dialog';

function Page() {
  const [isOpen, setOpen] = useState(false);
  const [isGone, setGone] = useState(false);
  return (
    <MantineProvider env="test">
      <main id="content" tabIndex={-1}>
        {!isGone && <Button onClick={() => setOpen(true)}>Open</Button>}
        <Menu>
          <Menu.Target>
            <Button>More</Button>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item onClick={() => setOpen(true)}>Edit</Menu.Item>
          </Menu.Dropdown>
        </Menu>
      </main>
      {isOpen && (
        <Dialog title="Rename" onClose={() => setOpen(false)}>
          <Button
            onClick={() => {
              setGone(true);
              setOpen(false);
            }}
          >
            Remove
          </Button>
        </Dialog>
      )}
    </MantineProvider>
  );
}

const focused = () => document.activeElement;

test('the focus goes back to the button that opened a dialog', async () => {
  const user = userEvent.setup();
  render(<Page />);
  await user.click(screen.getByRole('button', { name: 'Open' }));
  await user.click(await screen.findByRole('button', { name: 'Close' }));
  await waitFor(() => expect(focused()).toBe(screen.getByRole('button', { name: 'Open' })));
});

test('the focus goes back to the button of the menu that opened a dialog', async () => {
  const user = userEvent.setup();
  render(<Page />);
  await user.click(screen.getByRole('button', { name: 'More' }));
  await user.click(await screen.findByRole('menuitem', { name: 'Edit' }));
  await user.click(await screen.findByRole('button', { name: 'Close' }));
  await waitFor(() => expect(focused()).toBe(screen.getByRole('button', { name: 'More' })));
});

test('the focus goes to the content if what opened a dialog is gone', async () => {
  const user = userEvent.setup();
  render(<Page />);
  await user.click(screen.getByRole('button', { name: 'Open' }));
  await user.click(await screen.findByRole('button', { name: 'Remove' }));
  await waitFor(() => expect(focused()?.id).toBe('content'));
});
