import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { AuditWebhook } from '~/api/types';
import type { Tone } from '~/components/Outcome';
import { exactNumber } from '~/domain/format';

const soon = 2_000;
const later = 15_000;

/** Null if the audit log is sent nowhere. */
export const auditWebhookQuery = (tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'audit webhook'),
    queryFn: async ({ signal }): Promise<AuditWebhook | null> => {
      const found = await api.get('/api/v1/tenants/{tenant}/audit-webhook', { tenant, optional: true, signal });
      return (found as unknown) instanceof Response ? null : found; // 204
    },
    refetchInterval: ({ state: { data } }) =>
      data && (data.test?.is_waiting || data.is_under_way || (data.is_active && data.waiting > 0)) ? soon : later,
  });

export function stateOf({ is_active, failures }: AuditWebhook): { tone: Tone; word: string } {
  if (!is_active) return { tone: 'neutral', word: 'Off' };
  if (failures > 0) return { tone: 'denied', word: 'Failing' };
  return { tone: 'allowed', word: 'On' };
}

/** The server counts no further. */
const mostCounted = 10_000;

export function waitingOf({ waiting }: AuditWebhook): string {
  if (waiting === 0) return 'None';
  const counted = `${exactNumber(waiting)} ${waiting === 1 ? 'change' : 'changes'}`;
  return waiting >= mostCounted ? `${counted} or more` : counted;
}

export function resultOf(status: number | null, error: string): string {
  return error || (status === null ? 'no answer' : `answered ${status}`);
}

export const isReceived = (status: number | null) => status !== null && status >= 200 && status < 300;
