import type { FailureMode, Tenant } from '~/api/types';
import { failureModeLabels, fieldLabels } from '~/domain/rule';

export const failureModeMeans: Record<FailureMode, string> = {
  local: 'Each process applies the same limits by itself.',
  open: 'No request is limited.',
  closed: 'Every matching request is denied with 503.',
};

export const numbers = ['retry_jitter_percent', 'ipv4_prefix', 'ipv6_prefix', 'record_days'] as const;

type Numbers = Record<(typeof numbers)[number], number | string>;

export interface Draft extends Numbers {
  name: string;
  default_plan: string;
  failure_mode: FailureMode;
  fixed_rates: boolean;
}

export function draftOf({ name, default_plan, settings }: Tenant): Draft {
  const { failure_mode, retry_jitter_percent, ipv4_prefix, ipv6_prefix, record_days, fixed_rates } = settings;
  const numbers = { retry_jitter_percent, ipv4_prefix, ipv6_prefix, record_days };
  return { name, default_plan: default_plan ?? '', failure_mode, ...numbers, fixed_rates };
}

/** An empty number becomes NaN, which the server refuses at its field. */
export function patchOf({ name, default_plan, ...settings }: Draft) {
  const read = Object.fromEntries(
    numbers.map((field) => [field, settings[field] === '' ? Number.NaN : Number(settings[field])]),
  ) as Record<keyof Numbers, number>;
  return { name, default_plan: default_plan || null, settings: { ...settings, ...read } };
}

const said: Record<keyof Draft, (draft: Draft) => [string, string]> = {
  name: ({ name }) => ['Name', name],
  default_plan: ({ default_plan }) => ['Default plan', default_plan || 'none'],
  failure_mode: ({ failure_mode }) => [fieldLabels.failure_mode, failureModeLabels[failure_mode]],
  retry_jitter_percent: ({ retry_jitter_percent }) => ['Retry jitter', `${retry_jitter_percent} %`],
  ipv4_prefix: ({ ipv4_prefix }) => ['IPv4 prefix', `/${ipv4_prefix}`],
  ipv6_prefix: ({ ipv6_prefix }) => ['IPv6 prefix', `/${ipv6_prefix}`],
  record_days: ({ record_days }) => ['Record checks', `${record_days} days`],
  fixed_rates: ({ fixed_rates }) => ['Rates adapt to backends', fixed_rates ? 'no' : 'yes'],
};

export const sayField = (field: keyof Draft, draft: Draft) => said[field](draft);

export function factsOf(tenant: Tenant): Record<string, string> {
  const draft = draftOf(tenant);
  return Object.fromEntries(Object.values(said).map((say) => say(draft)));
}
