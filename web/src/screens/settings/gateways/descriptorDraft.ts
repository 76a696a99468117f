import type { DescriptorMapping } from '~/api/types';
import { textOf } from './json';

type Field = NonNullable<DescriptorMapping['keys']>[string];

export interface DomainDraft {
  id: number;
  name: string;
  /** One template per line, its steps joined with commas. */
  templates: string;
  /** "template > the template it replaces", one per line. */
  replaces: string;
}

/** The fields of the form, as they are typed. */
export interface DescriptorDraft {
  /** "key = field", one per line. */
  keys: string;
  domains: DomainDraft[];
}

const linesOf = (text: string) =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line);

/** Cuts a line at the last place of a separator. */
function cut(line: string, separator: string): [string, string] {
  const at = line.lastIndexOf(separator);
  return at < 0 ? [line, ''] : [line.slice(0, at).trim(), line.slice(at + separator.length).trim()];
}

export function draftOf({ keys, domains }: DescriptorMapping): DescriptorDraft {
  return {
    keys: Object.entries(keys ?? {})
      .map(([key, field]) => `${key} = ${field}`)
      .join('\n'),
    domains: Object.entries(domains ?? {}).map(([name, { templates, replaces }], id) => ({
      id,
      name,
      templates: (templates ?? []).map((steps) => steps.join(',')).join('\n'),
      replaces: Object.entries(replaces ?? {})
        .flatMap(([by, names]) => names.map((replaced) => `${by} > ${replaced}`))
        .join('\n'),
    })),
  };
}

export function mappingOf({ keys, domains }: DescriptorDraft): DescriptorMapping {
  const fields = linesOf(keys).map((line) => cut(line, '='));
  return {
    ...(fields.length > 0 && { keys: Object.fromEntries(fields) as Record<string, Field> }),
    ...(domains.length > 0 && {
      domains: Object.fromEntries(domains.map((domain) => [domain.name.trim(), domainOf(domain)])),
    }),
  };
}

function domainOf({ templates, replaces }: DomainDraft) {
  const steps = linesOf(templates).map((line) => line.split(',').map((step) => step.trim()));
  const replaced: Record<string, string[]> = {};
  for (const [by, name] of linesOf(replaces).map((line) => cut(line, ' > '))) {
    replaced[by] = [...(replaced[by] ?? []), name];
  }
  return {
    ...(steps.length > 0 && { templates: steps }),
    ...(Object.keys(replaced).length > 0 && { replaces: replaced }),
  };
}

/** A value with the fields of objects in order. */
function ordered(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const fields = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields.map(([name, inner]) => [name, ordered(inner)]));
}

/** A mapping as JSON in which fields that are left out stand, too. A domain without templates says something. */
function shown(mapping: DescriptorMapping): string {
  const { keys = {}, domains = {}, ...rest } = mapping;
  const whole = Object.entries(domains).map(([name, domain]) => [
    name,
    { templates: [], replaces: {}, ...domain },
  ]);
  return JSON.stringify(ordered({ keys, domains: Object.fromEntries(whole), ...rest }));
}

/** Whether two mappings are the same to who edits them. */
export const same = (a: DescriptorMapping, b: DescriptorMapping) => shown(a) === shown(b);

/** Whether the form shows all of a mapping: lines have no room for steps with commas, or for unknown fields. */
export function formCovers(mapping: DescriptorMapping): boolean {
  try {
    return same(mappingOf(draftOf(mapping)), mapping);
  } catch {
    return false; // a field of another type
  }
}

/** A mapping in words, one line per field. */
export function described(mapping: DescriptorMapping): Record<string, string> {
  if (!formCovers(mapping)) return { Mapping: textOf(mapping) };
  const { keys, domains } = draftOf(mapping);
  return {
    Keys: linesOf(keys).join(', ') || 'the default ones',
    ...Object.fromEntries(
      domains.map(({ name, templates, replaces }) => [
        `Domain ${name}`,
        [linesOf(templates).join(' · ') || 'without templates', ...linesOf(replaces)].join(' · '),
      ]),
    ),
  };
}

/** What the server could not see is missing, by JSON pointer. */
export function incomplete({ domains, keys }: DescriptorDraft): Record<string, string> {
  const wrong: Record<string, string> = {};
  const names = domains.map(({ name }) => name.trim());
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) wrong['/domains'] = `has ${twice || 'one without a name'} more than once`;
  const without = linesOf(keys).find((line) => !cut(line, '=')[1]);
  if (without) wrong['/keys'] = `must be “key = field” on each line, and “${without}” is not`;
  return wrong;
}

/** The server writes the dots of a name as it writes those between fields. */
export const domainPointer = (name: string) => `/domains/${name.trim().replaceAll('.', '/')}`;

/** The JSON pointers that the form has a field for; other errors are the form's as a whole. */
export function pointersOf({ keys, domains }: DescriptorDraft): string[] {
  return [
    '/keys',
    ...linesOf(keys).map((line) => `/keys/${cut(line, '=')[0].replaceAll('.', '/')}`),
    '/domains',
    ...domains.flatMap(({ name, templates }) => [
      `${domainPointer(name)}/replaces`,
      ...linesOf(templates).map((_, line) => `${domainPointer(name)}/templates/${line}`),
    ]),
  ];
}

/** The pointers of the lines of a field of the form, with the line. */
export function keyLines({ keys }: DescriptorDraft): [pointer: string, line: string][] {
  return linesOf(keys).map((line) => [`/keys/${cut(line, '=')[0].replaceAll('.', '/')}`, line]);
}

export function templateLines({ name, templates }: DomainDraft): [pointer: string, line: string][] {
  return linesOf(templates).map((line, index) => [`${domainPointer(name)}/templates/${index}`, line]);
}
