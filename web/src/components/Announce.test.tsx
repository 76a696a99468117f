import { act, screen } from '@testing-library/react';
import { afterEach, expect, test, vi } from 'vitest';
import { show } from '../../test/render';
import { Announce } from './Announce';

afterEach(() => {
  vi.useRealTimers();
});

const announced = () => screen.getByRole('status').textContent;
const after = (ms: number) => act(() => vi.advanceTimersByTime(ms));

test('a text is announced at once, and later ones at most every 15 seconds', () => {
  vi.useFakeTimers();
  const { rerender } = show(<Announce>1 new violation</Announce>);
  after(0);
  expect(announced()).toBe('1 new violation');

  after(1_000);
  rerender(<Announce>2 new violations</Announce>);
  after(1_000);
  rerender(<Announce>3 new violations</Announce>);
  after(12_999);
  expect(announced()).toBe('1 new violation');
  after(1);
  expect(announced()).toBe('3 new violations'); // the one between is left out

  after(60_000);
  rerender(<Announce>4 new violations</Announce>);
  after(0);
  expect(announced()).toBe('4 new violations');
});
