import { MantineProvider } from '@mantine/core';
import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { expect, test, vi } from 'vitest';
import { ChoiceField } from './ChoiceField';

const any = { value: '', label: 'Any plan' };

function show(plans: number, value = '') {
  const chosen = vi.fn();
  const data = [any, ...Array.from({ length: plans }, (_, i) => `plan-${i}`)];
  render(
    <MantineProvider env="test">
      <ChoiceField aria-label="Plan" data={data} value={value} onChange={chosen} />
    </MantineProvider>,
  );
  return { chosen, user: userEvent.setup() };
}

test('a few are the list of the browser', async () => {
  const { chosen, user } = show(3);
  await user.selectOptions(screen.getByRole('combobox', { name: 'Plan' }), 'plan-2');
  expect(chosen).toHaveBeenLastCalledWith('plan-2');
});

test('one of a hundred is found by typing, and none is a choice too', async () => {
  const { chosen, user } = show(100, 'plan-3');
  const field = screen.getByRole('combobox', { name: 'Plan' });
  expect((field as HTMLInputElement).value).toBe('plan-3');
  await user.clear(field);
  await user.type(field, '77');
  await user.click(await screen.findByRole('option', { name: 'plan-77' }));
  expect(chosen).toHaveBeenLastCalledWith('plan-77');
  await user.clear(field);
  await user.type(field, 'any');
  await user.click(await screen.findByRole('option', { name: 'Any plan' }));
  expect(chosen).toHaveBeenLastCalledWith('');
});

test('choices in groups are counted together, and many are searched', async () => {
  const chosen = vi.fn();
  const items = (from: number) => Array.from({ length: 8 }, (_, i) => `rule-${from + i}`);
  const data = [
    { group: 'Plan pro', items: items(0) },
    { group: 'Other plans', items: items(8) },
  ];
  render(
    <MantineProvider env="test">
      <ChoiceField label="Rule" data={data} value="rule-0" onChange={chosen} />
    </MantineProvider>,
  );
  const user = userEvent.setup();
  const field = screen.getByRole('combobox', { name: 'Rule' });
  await user.clear(field);
  await user.type(field, '15');
  await user.click(await screen.findByRole('option', { name: 'rule-15' }));
  expect(chosen).toHaveBeenLastCalledWith('rule-15');
});
