import { queryOptions } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { components } from '~/api/schema';
import { exactNumber, percent } from '~/domain/format';

export type Comparison = components['schemas']['RuleComparison'];

/** A candidate and its live rule on the same checks. */
export const comparisonQuery = (tenant: string, candidate: number) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'stats', 'comparison', candidate),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/tenants/{tenant}/rules/{rule_id}/comparison', {
          params: { path: { tenant, rule_id: candidate } },
          signal,
        }),
      ),
    refetchInterval: 15_000,
  });

/**
 * "The live rule denied 12 of 340 checks (3.5 %). The candidate would have denied 40 (12 %)." What the live rule denies from
 * memory does not reach the candidate: "The candidate was tried on 25 of them and would have denied 19 (76 %)."
 */
export function comparisonWords({ live_total: live, candidate_total: candidate }: Comparison): string {
  const all = live.allowed + live.denied + live.bypassed;
  const tried = candidate.allowed + candidate.denied + candidate.bypassed;
  if (all === 0) return 'No checks have matched yet.';
  const denied = `The live rule denied ${exactNumber(live.denied)} of ${exactNumber(all)} checks (${percent(live.denied / all)}).`;
  if (tried === 0) return `${denied} The candidate has been tried on none of them yet.`;
  const would = `would have denied ${exactNumber(candidate.denied)} (${percent(candidate.denied / tried)}).`;
  return tried < all
    ? `${denied} The candidate was tried on ${exactNumber(tried)} of them and ${would}`
    : `${denied} The candidate ${would}`;
}
