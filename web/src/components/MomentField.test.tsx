import { MantineProvider } from '@mantine/core';
import { render, screen } from '@testing-library/react';
import { expect, test } from 'vitest';
import { MomentField } from './MomentField';

const field = (value: string) =>
  render(
    <MantineProvider>
      <MomentField label="Ends" value={value} onChange={() => undefined} />
    </MantineProvider>,
  );

test('a time that is typed is said in words, with its zone', () => {
  field('2026-11-12T14:30');
  expect(screen.getByText(/^Thu 12 Nov 2026, 14:30 UTC/)).toBeDefined();
});

test('an empty field says its zone', () => {
  field('');
  expect(screen.getByText(/^In .*UTC/)).toBeDefined();
});
