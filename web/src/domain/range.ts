/** Time ranges as the URL has them: "1h", or two moments with a tilde between. */
export const ranges = [
  { value: '15m', label: 'Last 15 minutes', ms: 15 * 60_000 },
  { value: '1h', label: 'Last hour', ms: 3_600_000 },
  { value: '6h', label: 'Last 6 hours', ms: 6 * 3_600_000 },
  { value: '24h', label: 'Last 24 hours', ms: 86_400_000 },
  { value: '7d', label: 'Last 7 days', ms: 7 * 86_400_000 },
  { value: '30d', label: 'Last 30 days', ms: 30 * 86_400_000 },
];

export interface Moments {
  from: number;
  until: number;
}

export interface Span {
  text: string;
  /** Whether its moments change as time passes, as those of "1h" do. */
  moves: boolean;
  at: (now: number) => Moments;
}

export function isoMoments(span: Span, now: number): { from: string; until: string } {
  const { from, until } = span.at(now);
  return { from: new Date(from).toISOString(), until: new Date(until).toISOString() };
}

export function isNamedRange(text: string): boolean {
  return ranges.some(({ value }) => value === text);
}

export function namedSpan(text: '1h' | '24h' | '30d'): Span {
  return { text, moves: true, at: (now) => parseRange(text, now) ?? { from: now, until: now } };
}

export function earlier({ text, moves, at }: Span, ms: number): Span {
  return {
    text: `${text} − ${ms}`,
    moves,
    at: (now) => {
      const { from, until } = at(now);
      return { from: from - ms, until: until - ms };
    },
  };
}

export function parseRange(text: string, now: number): Moments | null {
  const named = ranges.find(({ value }) => value === text);
  if (named) return { from: now - named.ms, until: now };
  const [from = Number.NaN, until = Number.NaN] = text.split('~').map((moment) => Date.parse(moment));
  return from < until ? { from, until } : null;
}

/** Widens a brushed range, in seconds, to the steps that it touches, because a step is drawn where it begins. */
export function wholeSteps(from: number, until: number, step: number): [from: number, until: number] {
  return [Math.floor(from / step) * step, (Math.floor(until / step) + 1) * step];
}

export function between(from: number, until: number): string {
  const text = (ms: number) => new Date(Math.round(ms / 1000) * 1000).toISOString().replace('.000Z', 'Z');
  return `${text(from)}~${text(Math.max(until, from + 1000))}`;
}
