import { screen } from '@testing-library/react';
import { useState } from 'react';
import { expect, test } from 'vitest';
import type { Rate } from '~/domain/rate';
import { show } from '../../test/render';
import { BurstInput } from './BurstInput';
import { RateInput } from './RateInput';

function Field({ onRate }: { onRate: (rate: Rate) => void }) {
  const [rate, setRate] = useState<Rate>({ rate_per_second: 10, rate_unit: 'second' });
  onRate(rate);
  return <RateInput label="Rate" value={rate} onChange={setRate} />;
}

function setUp() {
  let last: Rate | undefined;
  const { user } = show(<Field onRate={(rate) => (last = rate)} />);
  return {
    user,
    number: screen.getByRole('textbox', { name: 'Rate' }),
    unit: screen.getByRole('combobox'),
    rate: () => last,
  };
}

test('typing a number keeps the unit', async () => {
  const { user, number, rate } = setUp();
  await user.clear(number);
  await user.type(number, '2.5');
  expect(rate()).toEqual({ rate_per_second: 2.5, rate_unit: 'second' });
  expect(number).toHaveProperty('value', '2.5');
});

test('typing a rate with its unit sets both', async () => {
  const { user, number, unit, rate } = setUp();
  await user.clear(number);
  await user.type(number, '1000/day');
  await user.tab();
  expect(rate()).toEqual({ rate_per_second: 1000 / 86400, rate_unit: 'day' });
  expect(number).toHaveProperty('value', '1,000');
  expect(unit).toHaveProperty('value', 'day');
});

test('choosing a unit keeps the number', async () => {
  const { user, unit, rate } = setUp();
  await user.selectOptions(unit, 'minute');
  expect(rate()).toEqual({ rate_per_second: 10 / 60, rate_unit: 'minute' });
});

test('what is no rate stays as it was typed, and is none', async () => {
  const { user, number, rate } = setUp();
  await user.clear(number);
  await user.type(number, 'ten');
  await user.tab();
  expect(rate()?.rate_per_second).toBeNaN();
  expect(number).toHaveProperty('value', 'ten');
});

test('what is no rate is still there after another unit was chosen, and is read again with it', async () => {
  const { user, number, unit, rate } = setUp();
  await user.clear(number);
  await user.type(number, '5o');
  await user.selectOptions(unit, 'minute');
  expect(number).toHaveProperty('value', '5o');
  await user.type(number, '{Backspace}');
  expect(rate()).toEqual({ rate_per_second: 5 / 60, rate_unit: 'minute' });
});

test('a decimal comma is a decimal comma, in rates and in bursts', async () => {
  const { user, number, rate } = setUp();
  await user.clear(number);
  await user.type(number, '0,5/s');
  expect(rate()).toEqual({ rate_per_second: 0.5, rate_unit: 'second' });

  let burst = 1500;
  const Burst = () => {
    const [value, setValue] = useState(burst);
    burst = value;
    return <BurstInput label="Burst" value={value} onChange={setValue} />;
  };
  show(<Burst />);
  const field = screen.getByRole('textbox', { name: 'Burst' });
  expect(field).toHaveProperty('value', '1,500');
  await user.clear(field);
  await user.type(field, '1,5');
  expect(burst).toBe(1.5);
  await user.clear(field);
  await user.type(field, '12x');
  await user.tab();
  expect(burst).toBeNaN();
  expect(field).toHaveProperty('value', '12x');
});
