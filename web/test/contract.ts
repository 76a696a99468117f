import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { inject } from 'vitest';
import type { Description } from './description';

/* Holds the answers of test servers against api/openapi.yaml. */

type Operation = Description['paths'][string][string];
type Described = Operation['responses'][string];

const name = 'openapi.yaml';
const description = inject('description');
const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: true });
formats.default(ajv);
ajv.addSchema({ $id: name, ...description }, undefined, undefined, false); // it is no schema; its parts are

const templates = Object.keys(description.paths)
  .map((template) => ({ template, pattern: new RegExp(`^${template.replace(/\{[^}]+\}/g, '[^/]+')}$`) }))
  // A fixed path before one with a parameter.
  .toSorted((a, b) => a.template.split('{').length - b.template.split('{').length);

const validators = new Map<string, ValidateFunction | null>();

export function mistakeOf(method: string, path: string, status: number, json: unknown): string | null {
  const template = templates.find(({ pattern }) => pattern.test(path))?.template;
  const operation = template && description.paths[template]?.[method.toLowerCase()];
  if (!template || !operation) return `openapi.yaml has no ${method} ${path}`;
  const key = `${method} ${template} ${status}`;
  let validate = validators.get(key);
  if (validate === undefined) {
    validate = validatorOf(template, method.toLowerCase(), operation, status);
    validators.set(key, validate);
  }
  if (validate === null) return `openapi.yaml has no JSON with status ${status} for ${method} ${template}`;
  if (validate(json)) return null;
  return `${key}: ${ajv.errorsText(validate.errors, { dataVar: 'answer' })}`;
}

function validatorOf(template: string, method: string, { responses }: Operation, status: number) {
  const described = responses[status];
  if (!described) return null;
  const at = described.$ref?.slice(1) ?? `/paths/${escaped(template)}/${method}/responses/${status}`;
  const content =
    (
      at
        .split('/')
        .slice(1)
        .reduce(step, description as unknown) as Described
    ).content ?? {};
  const media = Object.keys(content).find((type) => type.includes('json'));
  return media ? ajv.compile({ $ref: `${name}#${encodeURI(`${at}/content/${escaped(media)}/schema`)}` }) : null;
}

function step(value: unknown, part: string): unknown {
  return (value as Record<string, unknown>)[part.replaceAll('~1', '/').replaceAll('~0', '~')];
}

function escaped(part: string): string {
  return part.replaceAll('~', '~0').replaceAll('/', '~1');
}
