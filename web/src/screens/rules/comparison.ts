import { queryOptions } from '@tanstack/react-query';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { components } from '~/api/schema';
import { exactNumber, percent, plural, shortTime } from '~/domain/format';

export type Comparison = components['schemas']['RuleComparison'];

export const comparisonQuery = (tenant: string, candidate: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'stats', 'comparison', candidate),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/rules/{rule_id}/comparison', { tenant, rule_id: candidate, signal }),
    refetchInterval: 15_000,
  });

export function isCollecting({ since, until }: Comparison): boolean {
  return Date.parse(since) >= Date.parse(until);
}

/** A candidate is tried only on checks that no rule denies. */
export function comparisonWords(data: Comparison): string {
  if (isCollecting(data)) return `Both are compared from ${shortTime(Date.parse(data.since))} on.`;
  const { live_total: live, candidate_total: candidate } = data;
  const all = live.allowed + live.denied + live.bypassed;
  const passed = candidate.allowed + candidate.denied + candidate.bypassed;
  if (all === 0) return 'No checks have matched yet.';
  const denied =
    `The live rule denied ${exactNumber(live.denied)} of ${plural(all, 'check')} ` + `(${percent(live.denied / all)}).`;
  if (passed === 0) return `${denied} None passed all rules, so the candidate was tried on none.`;
  const more = `${exactNumber(candidate.denied)} (${percent(candidate.denied / passed)})`;
  return `${denied} Of the ${exactNumber(passed)} that passed all rules, the candidate would have denied ${more}.`;
}
