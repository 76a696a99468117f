import { MantineProvider } from '@mantine/core';
import { fireEvent, render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { useState } from 'react';
import { expect, test, vi } from 'vitest';
import { Dialog } from './Dialog';
import { MomentField } from './MomentField';

const halfPastTwo = Date.parse('2026-11-12T14:30Z');

function field(first: number | null) {
  const changes = vi.fn<(at: number | null) => void>();
  const closed = vi.fn();
  function Held() {
    const [at, setAt] = useState(first);
    return (
      <Dialog title="A dialog" onClose={closed}>
        <MomentField
          label="Ends"
          value={at}
          onChange={(value) => {
            changes(value);
            setAt(value);
          }}
        />
      </Dialog>
    );
  }
  render(
    <MantineProvider env="test">
      <Held />
    </MantineProvider>,
  );
  return { changes, closed, input: screen.getByLabelText<HTMLInputElement>('Ends'), user: userEvent.setup() };
}

test('a time is said in words, with its zone', () => {
  expect(field(halfPastTwo).input.value).toBe('2026-11-12 14:30');
  expect(screen.getByText(/^Thu 12 Nov 2026, 14:30 UTC/)).toBeDefined();
});

test('an empty field says its zone', () => {
  expect(field(null).input.value).toBe('');
  expect(screen.getByText(/^In .*UTC/)).toBeDefined();
});

test('the field keeps the typed text, and is invalid until that is a time', async () => {
  const { changes, input, user } = field(halfPastTwo);
  await user.clear(input);
  expect(changes).toHaveBeenLastCalledWith(null);
  await user.type(input, '2026-12');
  expect(input.value).toBe('2026-12');
  expect(changes).toHaveBeenLastCalledWith(Number.NaN);
  expect(screen.getByText('Write it as 2026-12-31 14:30.')).toBeDefined();
  await user.type(input, '-1 9:05');
  expect(input.value).toBe('2026-12-1 9:05');
  expect(changes).toHaveBeenLastCalledWith(Date.parse('2026-12-01T09:05Z'));
  expect(screen.queryByText(/^Write it/)).toBeNull();
});

test('a day that is picked keeps the time', async () => {
  const { changes, input, user } = field(halfPastTwo);
  await user.click(screen.getByRole('button', { name: 'Pick a day' }));
  await user.click(await screen.findByRole('button', { name: '24 November 2026' }));
  expect(input.value).toBe('2026-11-24 14:30');
  expect(changes).toHaveBeenLastCalledWith(Date.parse('2026-11-24T14:30Z'));
  await waitFor(() => expect(screen.queryByRole('button', { name: '24 November 2026' })).toBeNull());
});

test('the calendar opens with the focus on the day, which the arrow keys move', async () => {
  const { input, user } = field(halfPastTwo);
  await user.click(screen.getByRole('button', { name: 'Pick a day' }));
  const day = await screen.findByRole('button', { name: '12 November 2026' });
  await waitFor(() => expect(document.activeElement).toBe(day));
  await user.keyboard('{ArrowDown}{Enter}');
  expect(input.value).toBe('2026-11-19 14:30');
});

test('Escape closes the calendar, and not the dialog', async () => {
  const { closed, user } = field(halfPastTwo);
  await user.click(screen.getByRole('button', { name: 'Pick a day' }));
  fireEvent.keyDown(await screen.findByRole('button', { name: '12 November 2026' }), { key: 'Escape' });
  await waitFor(() => expect(screen.queryByRole('button', { name: '12 November 2026' })).toBeNull());
  expect(closed).not.toHaveBeenCalled();
  fireEvent.keyDown(screen.getByLabelText('Ends'), { key: 'Escape' });
  expect(closed).toHaveBeenCalledOnce();
});
