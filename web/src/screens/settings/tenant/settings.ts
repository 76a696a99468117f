import type { FailureMode, Tenant } from '~/api/types';

/** What a rule does while Redis cannot answer, in words. */
export const failureModes: { value: FailureMode; label: string; means: string }[] = [
  {
    value: 'local',
    label: 'Local: limit by what each process knows',
    means: 'Each process counts by itself meanwhile, with the same limits.',
  },
  { value: 'open', label: 'Open: let requests pass', means: 'Nobody is limited meanwhile.' },
  {
    value: 'closed',
    label: 'Closed: refuse requests',
    means: 'Every matching request is refused with 503 meanwhile.',
  },
];

/** What the form edits, as it is typed. */
export interface Draft {
  name: string;
  default_plan: string;
  failure_mode: FailureMode;
  jitter: number | string;
  ipv4: number | string;
  ipv6: number | string;
}

export function draftOf({ name, default_plan, settings }: Tenant): Draft {
  return {
    name,
    default_plan: default_plan ?? '',
    failure_mode: settings.failure_mode,
    jitter: settings.retry_jitter_percent,
    ipv4: settings.ipv4_prefix,
    ipv6: settings.ipv6_prefix,
  };
}

/** The tenant as the draft wants it; an empty number is none, and the server says so. */
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
    },
  };
}

/** The draft as people read it, a line for each field. */
export function described(draft: Draft): Record<string, string> {
  return {
    Name: draft.name,
    'Default plan': draft.default_plan || 'none',
    'While Redis is away': draft.failure_mode,
    'Retry jitter': `${draft.jitter} %`,
    'IPv4 prefix': `/${draft.ipv4}`,
    'IPv6 prefix': `/${draft.ipv6}`,
  };
}
