import type { Tenant } from '~/api/types';

/** Where a Redis Cluster keeps a tenant's buckets. */
export type Placement = Tenant['buckets'];

export const placements: Placement[] = ['together', 'spread'];

export const placementLabels: Record<Placement, string> = {
  together: 'Together on one server',
  spread: 'Spread over all servers',
};

/** When to choose it. */
export const placementMeans: Record<Placement, string> = {
  together:
    'For nearly every tenant: one server decides tens of thousands of checks a second, and every kind of limit is possible.',
  spread:
    'For a tenant that is too busy for one server. Limits that users share must be token buckets, and there are no concurrency limits and no reservations.',
};
