import { isStatus } from '~/api/problem';
import type { Rule, ScheduledChange, ScheduledRule } from '~/api/types';
import { moment, momentSpan } from './format';
import { modeLabels, ruleEffect } from './rule';

export function byRule(open: ScheduledChange[]): Map<string, ScheduledChange> {
  const last = open.toReversed();
  return new Map(last.flatMap((change) => change.rules.map(({ rule_id }) => [rule_id, change])));
}

export const isOpen = ({ state }: ScheduledChange) => state === 'waiting' || state === 'in_force';

export function whenWords({ starts_at, ends_at }: Pick<ScheduledChange, 'starts_at' | 'ends_at'>): string {
  const start = Date.parse(starts_at);
  return ends_at ? momentSpan(start, Date.parse(ends_at)) : `from ${moment(start)} on`;
}

export function stateWords({ state, rules }: ScheduledChange): string {
  if (state === 'edited' && rules.some(({ failure }) => failure === null)) return 'Partly taken back';
  return {
    waiting: 'Waiting',
    in_force: 'In force',
    done: 'Done',
    edited: 'Not taken back',
    failed: 'Failed',
    canceled: 'Canceled',
  }[state];
}

export function becomes(rule: Rule, change: ScheduledRule['change']): string {
  const after = { ...rule, ...change } as Rule;
  const limits = ['action', 'algorithm', 'rate_per_second', 'rate_unit', 'burst_capacity', 'window'];
  const ofLimit = limits.some((field) => field in change);
  const others = Object.keys(change).filter(
    (field) => !limits.includes(field) && field !== 'mode' && field !== 'is_active',
  );
  return [
    ofLimit && ruleEffect(after),
    change.mode && modeLabels[change.mode],
    change.is_active !== undefined && (change.is_active ? 'On' : 'Off'),
    !ofLimit && others.length > 0 && 'Other settings',
  ]
    .filter(Boolean)
    .join(', ');
}

export function refusal(error: unknown): unknown {
  if (isStatus(error, 409)) return new Error(error.message);
  if (!isStatus(error, 412)) return error;
  const isGone = error.document.errors?.some(({ detail }) => detail.includes('removed'));
  return new Error(
    isGone
      ? 'Somebody else removed the rule. Nothing was scheduled.'
      : 'Somebody else changed the rule meanwhile. Nothing was scheduled: open it again.',
  );
}
