import type { Alert, AlertCondition, NewAlert, Rule } from '~/api/types';
import type { fieldsOf } from '~/components/useSave';
import { hasRate } from '~/domain/rate';
import { windowSeconds } from '~/domain/window';

export type Field = ReturnType<typeof fieldsOf<AlertDraft>>;

export const everyRule = 'every';

export interface AlertDraft {
  name: string;
  kind: Alert['kind'];
  /** A rule’s id, or everyRule; null: not chosen yet. */
  rule_id: string | null;
  per: Alert['per'];
  threshold: number | string;
  window_minutes: number | string;
  format: Alert['format'];
  /** The server never sends the whole URL; '' keeps it. */
  url: string;
  routing_key: string;
  email: string | null;
  is_active: boolean;
}

const mostSuggested = 1000;
const leastSuggested = 10;

/** Infinite for a limit that is none of checks over time. */
export function allowedInFiveMinutes(rule: Rule | undefined): number {
  if (rule?.action !== 'limit' || rule.algorithm === 'concurrency') return Number.POSITIVE_INFINITY;
  if (hasRate(rule.algorithm)) return Math.round(rule.rate_per_second * 300);
  return Math.round(rule.burst_capacity * Math.max(1, 300 / windowSeconds(rule.window ?? '')));
}

/** As many denials as the rule allows in five minutes, which a bucket reaches that is asked for twice its limit. */
export function suggestedThreshold(rule: Rule | undefined): number {
  return Math.min(mostSuggested, Math.max(leastSuggested, allowedInFiveMinutes(rule)));
}

export function draftOf(alert: Alert | null, rule?: Rule): AlertDraft {
  return {
    name: alert?.name ?? '',
    kind: alert?.kind ?? 'denials',
    rule_id: alert ? String(alert.rule_id ?? everyRule) : rule ? String(rule.rule_id) : null,
    per: alert?.per ?? 'rule',
    threshold: alert?.threshold ?? suggestedThreshold(rule),
    window_minutes: alert?.window_minutes ?? 5,
    format: alert?.format ?? 'webhook',
    url: '',
    routing_key: '',
    email: alert?.email ?? null,
    is_active: alert?.is_active ?? true,
  };
}

/** Has the destination of its format only, and a URL or routing key only if one was typed. */
export function wantedBy(draft: AlertDraft): NewAlert {
  const { name, kind, per, format, url, routing_key, email, is_active } = draft;
  return {
    name,
    kind,
    rule_id: draft.rule_id === everyRule ? null : draft.rule_id,
    per,
    threshold: Number(draft.threshold),
    window_minutes: Number(draft.window_minutes),
    format,
    ...((format === 'webhook' || format === 'slack') && url !== '' && { url }),
    ...(format === 'pagerduty' && routing_key !== '' && { routing_key }),
    ...(format === 'email' && { email: email ?? '' }),
    is_active,
  };
}

export function conditionIn(draft: AlertDraft): AlertCondition | null {
  const { kind, rule_id, per, threshold, window_minutes } = wantedBy(draft);
  if (draft.rule_id === null || !threshold || !window_minutes) return null;
  return { kind, rule_id, per, threshold, window_minutes };
}
