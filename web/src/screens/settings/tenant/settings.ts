import type { FailureMode, Tenant } from '~/api/types';
import { failureModeLabels, fieldLabels } from '~/domain/rule';

export const failureModeMeans: Record<FailureMode, string> = {
  local: 'Each process applies the same limits by itself.',
  open: 'No request is limited.',
  closed: 'Every matching request is denied with 503.',
};

export interface Draft {
  name: string;
  default_plan: string;
  failure_mode: FailureMode;
  jitter: number | string;
  ipv4: number | string;
  ipv6: number | string;
  recordDays: number | string;
  adapts: boolean;
}

export function draftOf({ name, default_plan, settings }: Tenant): Draft {
  return {
    name,
    default_plan: default_plan ?? '',
    failure_mode: settings.failure_mode,
    jitter: settings.retry_jitter_percent,
    ipv4: settings.ipv4_prefix,
    ipv6: settings.ipv6_prefix,
    recordDays: settings.record_days,
    adapts: !settings.fixed_rates,
  };
}

/** The body of a save. An empty number becomes NaN, which the server refuses at its field. */
export function patchOf(draft: Draft) {
  const number = (value: number | string) => (value === '' ? Number.NaN : Number(value));
  return {
    name: draft.name,
    default_plan: draft.default_plan || null,
    settings: {
      failure_mode: draft.failure_mode,
      retry_jitter_percent: number(draft.jitter),
      ipv4_prefix: number(draft.ipv4),
      ipv6_prefix: number(draft.ipv6),
      record_days: number(draft.recordDays),
      fixed_rates: !draft.adapts,
    },
  };
}

export function sayField(field: keyof Draft, draft: Draft): [string, string] {
  switch (field) {
    case 'name':
      return ['Name', draft.name];
    case 'default_plan':
      return ['Default plan', draft.default_plan || 'none'];
    case 'failure_mode':
      return [fieldLabels.failure_mode, failureModeLabels[draft.failure_mode]];
    case 'jitter':
      return ['Retry jitter', `${draft.jitter} %`];
    case 'ipv4':
      return ['IPv4 prefix', `/${draft.ipv4}`];
    case 'ipv6':
      return ['IPv6 prefix', `/${draft.ipv6}`];
    case 'recordDays':
      return ['Record checks', `${draft.recordDays} days`];
    default:
      return ['Rates adapt to backends', draft.adapts ? 'yes' : 'no'];
  }
}
