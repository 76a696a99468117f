import type { AuthorizeMapping } from '~/api/types';
import { textOf } from './json';

/** Where a value of a check comes from. */
export interface Source {
  from: '' | 'header' | 'claim' | 'query';
  name: string;
}

export interface AttributeDraft extends Source {
  id: number;
  attribute: string;
}

/** The fields of the form, as they are typed. */
export interface Draft {
  user: Source;
  plain: boolean;
  plan: Source;
  cost: Source;
  costDefault: number | string;
  endpointHeader: string;
  methodHeader: string;
  /** One template per line. */
  templates: string;
  addressHeader: string;
  hops: number | string;
  attributes: AttributeDraft[];
  keys: '' | 'url' | 'inline';
  jwksUrl: string;
  jwks: string;
  tokenHeader: string;
  issuer: string;
  audience: string;
  optional: boolean;
}

function sourceOf(given?: { header?: string; claim?: string; query?: string }): Source {
  if (given?.claim !== undefined) return { from: 'claim', name: given.claim };
  if (given?.query !== undefined) return { from: 'query', name: given.query };
  return given?.header === undefined ? { from: '', name: '' } : { from: 'header', name: given.header };
}

export function draftOf({ user, plan, cost, endpoint, address, attributes, jwt }: AuthorizeMapping): Draft {
  return {
    user: sourceOf(user),
    plain: user?.plain ?? false,
    plan: sourceOf(plan),
    cost: sourceOf(cost),
    costDefault: cost?.default ?? '',
    endpointHeader: endpoint?.header ?? '',
    methodHeader: endpoint?.method_header ?? '',
    templates: Array.isArray(endpoint?.templates) ? endpoint.templates.join('\n') : '',
    addressHeader: address?.header ?? '',
    hops: address?.trusted_hops ?? 0,
    attributes: Object.entries(attributes ?? {}).map(([attribute, source], id) => ({
      id,
      attribute,
      ...sourceOf(source),
    })),
    keys: jwt ? (jwt.jwks ? 'inline' : 'url') : '',
    jwksUrl: jwt?.jwks_url ?? '',
    jwks: jwt?.jwks ?? '',
    tokenHeader: jwt?.header ?? '',
    issuer: jwt?.issuer ?? '',
    audience: jwt?.audience ?? '',
    optional: jwt?.optional ?? false,
  };
}

/** The mapping that a draft stands for. The server has the last word on its values. */
export function mappingOf(draft: Draft): AuthorizeMapping {
  const source = ({ from, name }: Source) => (from ? { [from]: name.trim() } : {});
  const lines = draft.templates
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line);
  const number = (value: number | string) => (value === '' ? undefined : Number(value));
  const jwt = {
    header: draft.tokenHeader.trim(),
    ...(draft.keys === 'inline' ? { jwks: draft.jwks } : { jwks_url: draft.jwksUrl.trim() }),
    issuer: draft.issuer,
    audience: draft.audience,
    optional: draft.optional,
  };
  return {
    // With keys that are not filled in yet the section stays, so that the server says what it needs.
    ...(draft.keys && { jwt: pruned(jwt) ?? {} }),
    // A source without a name stays too.
    ...(draft.user.from && {
      user: { ...source(draft.user), ...(draft.user.from === 'header' && draft.plain && { plain: true }) },
    }),
    ...(draft.plan.from && { plan: source(draft.plan) }),
    ...part('cost', { ...source(draft.cost), default: number(draft.costDefault) }),
    ...part('endpoint', {
      header: draft.endpointHeader.trim(),
      method_header: draft.methodHeader.trim(),
      templates: lines,
    }),
    ...part('address', { header: draft.addressHeader.trim(), trusted_hops: number(draft.hops) }),
    ...(draft.attributes.length > 0 && {
      attributes: Object.fromEntries(draft.attributes.map((one) => [one.attribute.trim(), source(one)])),
    }),
  };
}

function part(name: string, fields: object) {
  const rest = pruned(fields);
  return rest === undefined ? {} : { [name]: rest };
}

/** A value without the fields that say nothing; undefined if nothing is left. A cost of 0 says something. */
function pruned(value: unknown, field = ''): unknown {
  if (Array.isArray(value)) return value.length > 0 ? value : undefined;
  if (typeof value === 'object' && value !== null) {
    const fields = Object.entries(value)
      .map(([name, inner]) => [name, pruned(inner, name)] as const)
      .filter(([, inner]) => inner !== undefined)
      .toSorted(([a], [b]) => (a < b ? -1 : 1));
    return fields.length > 0 ? Object.fromEntries(fields) : undefined;
  }
  if (value === '' || value === false || (value === 0 && field === 'trusted_hops')) return undefined;
  return value;
}

function meansSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(pruned(a)) === JSON.stringify(pruned(b));
}

/** Whether two mappings are the same to who edits them: a source that is not named yet is a difference. */
export function same(a: AuthorizeMapping, b: AuthorizeMapping): boolean {
  const shown = (one: AuthorizeMapping) => JSON.stringify(formCovers(one) ? mappingOf(draftOf(one)) : one);
  return shown(a) === shown(b);
}

/** Whether the form shows all of a mapping, so that nothing is lost on the way from JSON to the form. */
export function formCovers(mapping: AuthorizeMapping): boolean {
  try {
    return meansSame(mappingOf(draftOf(mapping)), mapping);
  } catch {
    return false; // a field of another type
  }
}

const words = { header: 'header', claim: 'claim', query: 'query parameter' };

/** A mapping in words, one line per field. */
export function described(mapping: AuthorizeMapping): Record<string, string> {
  if (!formCovers(mapping)) return { Mapping: textOf(mapping) };
  const draft = draftOf(mapping);
  const from = (source: Source, otherwise: string) =>
    source.from ? `${words[source.from]} ${source.name}` : otherwise;
  const hashed = draft.user.from === 'header' ? (draft.plain ? ', as it is' : ', hashed') : '';
  const { jwt } = mapping;
  const tokens = jwt && [
    `keys ${jwt.jwks_url ? `from ${jwt.jwks_url}` : `in the mapping: ${jwt.jwks}`}`,
    `in ${jwt.header || 'Authorization'}`,
    jwt.issuer && `issuer ${jwt.issuer}`,
    jwt.audience && `audience ${jwt.audience}`,
    jwt.optional ? 'optional' : 'required',
  ];
  return {
    User: from(draft.user, 'none') + hashed,
    Plan: from(draft.plan, 'the user’s plan, or the default'),
    Cost: `${from(draft.cost, '')} ${draft.cost.from ? 'or ' : ''}${draft.costDefault === '' ? 1 : draft.costDefault}`.trim(),
    Path: `header ${draft.endpointHeader || 'X-Forwarded-Uri'}`,
    Method: `header ${draft.methodHeader || 'X-Forwarded-Method'}`,
    Templates: mapping.endpoint?.templates?.join(' ') || 'none',
    Address: `header ${draft.addressHeader || 'X-Forwarded-For'}, ${draft.hops} trusted hops`,
    Attributes: draft.attributes.map((one) => `${one.attribute}: ${from(one, '')}`).join(', ') || 'none',
    Tokens: tokens ? tokens.filter((word) => word).join(', ') : 'not read',
  };
}

/** What the server could not see is missing, by JSON pointer: a cost that nothing names, an attribute that is there twice. */
export function incomplete({ cost, attributes }: Draft): Record<string, string> {
  const wrong: Record<string, string> = {};
  if (cost.from && !cost.name.trim()) wrong[`/cost/${cost.from}`] = 'must have a name';
  const names = attributes.map(({ attribute }) => attribute.trim());
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) wrong['/attributes'] = `has ${twice || 'one without a name'} more than once`;
  return wrong;
}

/** The server writes the dots of an attribute's name as it writes those between fields. */
export const attributePointer = ({ attribute }: AttributeDraft) =>
  `/attributes/${attribute.trim().replaceAll('.', '/')}`;

/** The JSON pointers that the form has a field for; other errors are the form's as a whole. */
export function pointersOf({ templates, attributes, keys }: Draft): string[] {
  const below = (pointer: string, ...fields: string[]) => [
    pointer,
    ...fields.map((field) => `${pointer}/${field}`),
  ];
  return [
    ...below('/user', 'header', 'claim', 'plain'),
    ...below('/plan', 'header', 'claim'),
    ...below('/cost', 'header', 'query', 'default'),
    ...below('/endpoint/templates', ...templates.split('\n').map((_, line) => String(line))),
    '/endpoint/header',
    '/endpoint/method_header',
    '/address/header',
    '/address/trusted_hops',
    '/attributes',
    ...attributes.flatMap((one) => below(attributePointer(one), 'header', 'claim')),
    '/jwt',
    ...(keys ? ['header', 'issuer', 'audience', 'optional'].map((field) => `/jwt/${field}`) : []),
    ...(keys === 'url' ? ['/jwt/jwks_url'] : []),
    ...(keys === 'inline' ? ['/jwt/jwks'] : []),
  ];
}
