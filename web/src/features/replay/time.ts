import { shortTime } from '~/domain/format';
import { type Moments, parseRange } from '~/domain/range';
import { dayBefore } from '~/domain/zone';
import type { Recording } from './queries';

export interface TimeDraft {
  choice: string;
  from: number | null;
  until: number | null;
}

export const custom = 'custom';

export const times = [
  { value: 'yesterday', label: 'Yesterday' },
  { value: '24h', label: 'Last day' },
  { value: '7d', label: '7 days' },
  { value: '30d', label: '30 days' },
  { value: custom, label: 'From–until' },
];

/** The range of the URL, or the last day; the two fields begin with yesterday. */
export function timeDraft(range: string | undefined, now: number): TimeDraft {
  const named = times.some(({ value }) => value === range && value !== custom);
  const given = named ? null : parseRange(range ?? '', now);
  const { from, until } = given ?? dayBefore(now);
  return {
    choice: named && range ? range : given ? custom : '24h',
    from,
    until,
  };
}

export function momentsOf({ choice, from, until }: TimeDraft, now: number): Moments {
  if (choice === custom) return { from: from ?? Number.NaN, until: until ?? Number.NaN };
  return parseRange(choice, now) ?? dayBefore(now);
}

export function timeProblem({ from, until }: Moments, { oldest, newest }: Recording): string | null {
  if (!(from < until)) return 'The end must be later than the start.';
  if (oldest && until <= Date.parse(oldest)) {
    return `No checks were recorded before ${shortTime(Date.parse(oldest))}.`;
  }
  if (newest && from > Date.parse(newest)) {
    return `No checks are recorded after ${shortTime(Date.parse(newest))}.`;
  }
  return null;
}
