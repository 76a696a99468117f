import { MantineProvider } from '@mantine/core';
import { act, render } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { RelativeTime } from './Time';

const start = Date.parse('2026-11-26T17:00:00Z');

afterEach(() => {
  vi.useRealTimers();
});

const ago = (seconds: number) => <RelativeTime key={seconds} at={new Date(start - seconds * 1000).toISOString()} />;

test('ages that were drawn at different times are of one moment', () => {
  vi.useFakeTimers({ now: start });
  const page = (...ages: number[]) => <MantineProvider>{ages.map(ago)}</MantineProvider>;
  const { container, rerender } = render(page(20));
  act(() => vi.advanceTimersByTime(3_000));
  rerender(page(20, 21)); // a row that came later, of what was earlier
  const texts = () => [...container.querySelectorAll('time')].map(({ textContent }) => textContent);
  expect(texts()).toEqual(['20\u202fs ago', '21\u202fs ago']);
  act(() => vi.advanceTimersByTime(2_000));
  expect(texts()).toEqual(['25\u202fs ago', '26\u202fs ago']);
});

test('a page that is opened later has the time of its opening', () => {
  vi.useFakeTimers({ now: start });
  const page = <MantineProvider>{ago(20)}</MantineProvider>;
  render(page).unmount();
  vi.setSystemTime(start + 30_000);
  expect(render(page).container.querySelector('time')?.textContent).toBe('50\u202fs ago');
});
