import type { Alert, NewAlert } from '~/api/types';

/** An alert as its form holds it: numbers may be half typed. */
export interface AlertDraft {
  name: string;
  rule_id: string | null;
  per: Alert['per'];
  threshold: number | string;
  window_minutes: number | string;
  format: Alert['format'];
  url: string;
  routing_key: string;
  email: string | null;
  is_active: boolean;
}

/** The draft of an alert; null begins a new one. */
export function draftOf(alert: Alert | null): AlertDraft {
  return {
    name: alert?.name ?? '',
    rule_id: alert ? String(alert.rule_id) : null,
    per: alert?.per ?? 'rule',
    threshold: alert?.threshold ?? 1000,
    window_minutes: alert?.window_minutes ?? 5,
    format: alert?.format ?? 'webhook',
    url: alert?.url ?? '',
    routing_key: '',
    email: alert?.email ?? null,
    is_active: alert?.is_active ?? true,
  };
}

/** What is sent of a draft: the destination of its format only, and a routing key only if one was typed. */
export function wantedBy(draft: AlertDraft): NewAlert {
  const { name, per, format, url, routing_key, email, is_active } = draft;
  return {
    name,
    rule_id: Number(draft.rule_id),
    per,
    threshold: Number(draft.threshold),
    window_minutes: Number(draft.window_minutes),
    format,
    ...((format === 'webhook' || format === 'slack') && { url }),
    ...(format === 'pagerduty' && routing_key !== '' && { routing_key }),
    ...(format === 'email' && { email: email ?? '' }),
    is_active,
  };
}
