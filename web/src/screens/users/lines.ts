import type { ProblemDocument } from '~/api/problem';

export interface LineError {
  line: number;
  content: string;
  detail: string;
}

export function lineErrors(problem: ProblemDocument, text: string): LineError[] {
  const lines = text.split(/\r?\n/);
  return (problem.errors ?? []).flatMap(({ pointer, detail }) => {
    const line = Number(/^\/lines\/(\d+)/.exec(pointer)?.[1] ?? Number.NaN);
    return Number.isNaN(line) ? [] : [{ line, content: lines[line - 1] ?? '', detail }];
  });
}
