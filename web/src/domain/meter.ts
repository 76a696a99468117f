import type { Rule } from '~/api/types';
import { shortNumber } from './format';

export const requests = 'requests';

const currencies = new Set(Intl.supportedValuesOf('currency'));

/** What follows an amount, in the server's words: nothing for requests, "USD" for money, else "input tokens". */
export function meterUnit(meter: string | undefined): string {
  if (!meter || meter === requests) return '';
  const code = meter.toUpperCase();
  return currencies.has(code) ? code : meter.replaceAll('_', ' ');
}

/** "1.2 M input tokens", "0.75 USD", "12": for what is left or used. */
export function meterAmount(value: number, meter: string | undefined): string {
  return `${shortNumber(value)} ${meterUnit(meter)}`.trimEnd();
}

export const chargeLabels: Record<Rule['charge'], string> = {
  before: 'Before the request',
  after: 'After the request',
};

export function canBeChargedAfter(algorithm: Rule['algorithm']): boolean {
  return algorithm === 'token_bucket' || algorithm === 'fixed_window' || algorithm === 'sliding_window';
}
