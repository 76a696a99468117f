import { act, fireEvent, screen } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import Toasts from '~/shell/Toasts';
import { show } from '../../test/render';
import { done, failed } from './toast';

afterEach(() => {
  vi.useRealTimers();
});

test('a failure goes after ten seconds, but not while the focus is in it', async () => {
  vi.useFakeTimers();
  show(<Toasts />);
  act(() => failed('Could not save', new Error('no')));
  const close = screen.getByRole('button', { name: 'Close' });
  expect(screen.getByRole('alert').textContent).toMatch(/Could not save/);
  fireEvent.focus(close);
  await act(() => vi.advanceTimersByTimeAsync(30_000));
  expect(screen.queryByText('Could not save')).not.toBeNull();
  fireEvent.blur(close);
  await act(() => vi.advanceTimersByTimeAsync(11_000));
  expect(screen.queryByText('Could not save')).toBeNull();
});

test('a toast with something to do does it and goes', async () => {
  vi.useFakeTimers();
  show(<Toasts />);
  const run = vi.fn();
  act(() => done('Blocked', { label: 'Open the rule', run }));
  await act(() => vi.advanceTimersByTimeAsync(5_000));
  fireEvent.click(screen.getByRole('button', { name: 'Open the rule' }));
  expect(run).toHaveBeenCalledOnce();
});
