import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { parse } from 'yaml';

export interface Description {
  paths: Record<
    string,
    Record<string, { responses: Record<string, { $ref?: string; content?: Record<string, { schema?: unknown }> }> }>
  >;
}

declare module 'vitest' {
  interface ProvidedContext {
    description: Description;
  }
}

export default function setup(project: TestProject) {
  project.provide('description', parse(readFileSync(join(import.meta.dirname, '../../api/openapi.yaml'), 'utf8')));
}
