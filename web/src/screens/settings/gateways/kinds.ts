import { queryOptions } from '@tanstack/react-query';
import { api, ifMatch, type Tagged, tagged } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { AuthorizeMapping, DescriptorMapping } from '~/api/types';
import * as descriptors from './descriptorDraft';
import * as authorize from './draft';

export interface Stored<M> {
  mapping: M;
  is_default: boolean;
  version: number;
}

/** A kind of gateway: where its mapping is stored, and how a form shows it. */
export interface Kind<M extends object, D> {
  name: 'authorize' | 'descriptors';
  get: (tenant: string, signal?: AbortSignal) => Promise<Tagged<Stored<M>>>;
  put: (tenant: string, etag: string, mapping: M) => Promise<Tagged<Stored<M>>>;
  remove: (tenant: string, etag: string) => Promise<unknown>;
  draftOf: (mapping: M) => D;
  mappingOf: (draft: D) => M;
  /** Whether the form shows all of a mapping, so that nothing is lost on the way from JSON to the form. */
  formCovers: (mapping: M) => boolean;
  same: (a: M, b: M) => boolean;
  /** A mapping in words, one line per field. */
  described: (mapping: M) => Record<string, string>;
  /** What the server could not see is missing, by JSON pointer. */
  incomplete: (draft: D) => Record<string, string>;
  /** The JSON pointers that the form has a field for. */
  pointersOf: (draft: D) => string[];
}

/** For proxies that ask over HTTP. */
export const authorizeKind: Kind<AuthorizeMapping, authorize.Draft> = {
  ...authorize,
  name: 'authorize',
  get: (tenant, signal) =>
    tagged(api.GET('/api/v1/tenants/{tenant}/gateways/authorize', { params: { path: { tenant } }, signal })),
  put: (tenant, etag, body) =>
    tagged(
      api.PUT('/api/v1/tenants/{tenant}/gateways/authorize', {
        params: { path: { tenant }, header: ifMatch(etag) },
        body,
      }),
    ),
  remove: (tenant, etag) =>
    api.DELETE('/api/v1/tenants/{tenant}/gateways/authorize', {
      params: { path: { tenant }, header: ifMatch(etag) },
    }),
};

/** For proxies that speak Envoy's rate limit service. */
export const descriptorKind: Kind<DescriptorMapping, descriptors.DescriptorDraft> = {
  ...descriptors,
  name: 'descriptors',
  get: (tenant, signal) =>
    tagged(
      api.GET('/api/v1/tenants/{tenant}/gateways/descriptors', { params: { path: { tenant } }, signal }),
    ),
  put: (tenant, etag, body) =>
    tagged(
      api.PUT('/api/v1/tenants/{tenant}/gateways/descriptors', {
        params: { path: { tenant }, header: ifMatch(etag) },
        body,
      }),
    ),
  remove: (tenant, etag) =>
    api.DELETE('/api/v1/tenants/{tenant}/gateways/descriptors', {
      params: { path: { tenant }, header: ifMatch(etag) },
    }),
};

/** The mapping of a kind; the default one if the tenant has none. */
export const mappingQuery = <M extends object, D>(kind: Kind<M, D>, tenant: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'gateways', kind.name),
    queryFn: ({ signal }) => kind.get(tenant, signal),
  });
