import type { Rule } from '~/api/types';
import { exactNumber, shortNumber } from './format';

export const requests = 'requests';

export const isMeter = (text: string) => /^[a-z][a-z0-9_]{0,31}$/.test(text);
export const notAMeter = 'must be a lower-case letter and up to 31 lower-case letters, digits and _, such as usd';

const currencies = new Set(Intl.supportedValuesOf('currency'));

/** The unit after an amount: nothing for requests, "USD" for money, else "input tokens". */
export function meterUnit(meter: string | undefined): string {
  if (!meter || meter === requests) return '';
  const code = meter.toUpperCase();
  return currencies.has(code) ? code : meter.replaceAll('_', ' ');
}

export function heldUnit(meter: string | undefined): string {
  return meterUnit(meter) || 'tokens';
}

export function isMoney(meter: string | undefined): boolean {
  return currencies.has((meter ?? '').toUpperCase());
}

/** The least that a check takes: a request, or a millionth of another meter. */
export function least(meter: string | undefined): number {
  return meterUnit(meter) ? 1e-6 : 1;
}

export function meterAmount(value: number, meter: string | undefined): string {
  return `${shortNumber(value)} ${meterUnit(meter)}`.trimEnd();
}

export function exactAmount(value: number, meter: string | undefined): string {
  return `${exactNumber(value)} ${meterUnit(meter)}`.trimEnd();
}

export const chargeLabels: Record<Rule['charge'], string> = {
  before: 'Before the request',
  after: 'After the request',
};

export function canBeChargedAfter(algorithm: Rule['algorithm']): boolean {
  return algorithm === 'token_bucket' || algorithm === 'fixed_window' || algorithm === 'sliding_window';
}
