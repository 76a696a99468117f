import { exactNumber, plural } from './format';

interface Lent {
  lent?: { tokens: number; processes: number };
}

export function lentText({ lent }: Lent): string {
  if (!lent) return '';
  return `${exactNumber(Math.ceil(lent.tokens))} more lent to ${plural(lent.processes, 'process', 'processes')}`;
}

export const lentHint = 'Tokens lent to a process for busy checks; unspent ones return within 2 s.';

export function roomOf({ burst_capacity, lent }: Lent & { burst_capacity: number }): number {
  return Math.max(0, burst_capacity - (lent?.tokens ?? 0));
}
