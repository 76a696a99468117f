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

/** "The live rule denied 12 of 340 checks (3.5 %). The candidate would have denied 40 (12 %)." */
export function comparisonWords({ live_total: live, candidate_total: candidate }: Comparison): string {
  const checks = live.allowed + live.denied + live.bypassed;
  if (checks === 0) return 'No checks have matched yet.';
  const share = (denied: number) => `(${percent(denied / checks)})`;
  return `The live rule denied ${exactNumber(live.denied)} of ${exactNumber(checks)} checks ${share(live.denied)}. The candidate would have denied ${exactNumber(candidate.denied)} ${share(candidate.denied)}.`;
}
