/** For the builder and in words: only the server validates patterns. */
export type Field = 'user' | 'endpoint' | 'ip' | 'attr' | 'global';

export interface Segment {
  field: Field;
  attribute?: string;
  each: boolean;
  /** The value that matches, with below the part up to the star; unused with each. */
  value: string;
  method?: string;
  below?: boolean;
}

type Parsed = { segments: Segment[]; error?: undefined } | { error: string; segments?: undefined };

const part = new RegExp(
  '(user|endpoint|ip|attr\\.[\\w.-]{1,64}):' +
    '(?:(?<=^endpoint:|:endpoint:)([A-Z][A-Z_-]*) )?' +
    '(?:"((?:[^"]|"")+)"(\\*?)|([^:"]+))(?::|$)',
  'y',
);

const braced = /^\{[^{}]*\}$/;

const unread = { error: 'Write fields and values, such as user:{user_id} or endpoint:/api/*' };

export function parsePattern(text: string): Parsed {
  if (text === 'global') return { segments: [{ field: 'global', each: false, value: '' }] };
  const segments: Segment[] = [];
  part.lastIndex = 0;
  while (part.lastIndex < text.length) {
    const found = part.exec(text);
    const segment = found && segmentOf(found);
    if (!segment || segments.some((one) => nameOf(one) === nameOf(segment))) return unread;
    segments.push(segment);
  }
  return segments.length === 0 || text.endsWith(':') ? unread : { segments: ordered(segments) };
}

function segmentOf([, name = '', method, quoted, star, bare = '']: RegExpExecArray): Segment | null {
  const isAttribute = name.startsWith('attr.');
  const segment: Segment = { field: (isAttribute ? 'attr' : name) as Field, each: false, value: bare };
  if (isAttribute) segment.attribute = name.slice('attr.'.length);
  if (method) segment.method = method;
  if (quoted !== undefined) {
    segment.value = quoted.replaceAll('""', '"');
    if (star) segment.below = true;
  } else if (segment.field === 'endpoint' && bare.endsWith('/*')) {
    segment.value = bare.slice(0, -1);
    segment.below = true;
  } else if (braced.test(bare)) {
    return bare === placeholderOf(segment) && !method ? { ...segment, each: true, value: '' } : null;
  }
  return segment;
}

function placeholderOf(segment: Segment): string {
  return segment.field === 'user' ? '{user_id}' : `{${nameOf(segment)}}`;
}

function nameOf(segment: Segment): string {
  return segment.field === 'attr' ? `attr.${segment.attribute}` : segment.field;
}

/** As the server prints them: the scope's first, then user, attr, endpoint, ip. */
function ordered(segments: Segment[]): Segment[] {
  const scope = scopeOf(segments);
  const order: Field[] = ['user', 'attr', 'endpoint', 'ip'];
  const rank = (one: Segment) => (one.field === scope && scope !== 'user' ? -1 : order.indexOf(one.field));
  return segments.toSorted((a, b) => rank(a) - rank(b) || compare(a.attribute ?? '', b.attribute ?? ''));
}

const compare = (a: string, b: string) => (a < b ? -1 : Number(a > b));

export function scopeOf(segments: Segment[]): 'user' | 'endpoint' | 'ip' | 'global' {
  const field = segments[0]?.field ?? 'global';
  return field === 'attr' ? 'user' : field;
}

export function printPattern(segments: Segment[]): string {
  return segments.map(printSegment).join(':');
}

function printSegment(segment: Segment): string {
  if (segment.field === 'global') return 'global';
  if (segment.each) return `${nameOf(segment)}:${placeholderOf(segment)}`;
  const { value, field } = segment;
  const quoted =
    /[:"]/.test(value) || value !== value.trim() || braced.test(value) || (field === 'endpoint' && /[ *]/.test(value));
  const text = quoted ? `"${value.replaceAll('"', '""')}"` : value;
  return `${nameOf(segment)}:${segment.method ? `${segment.method} ` : ''}${text}${segment.below ? '*' : ''}`;
}

export function splitsByUser(text: string): boolean {
  return parsePattern(text).segments?.some(({ field, each }) => field === 'user' && each) ?? false;
}

/** "Each user on POST /v1/charges", "Everything below /api/". An invalid text is returned as it is. */
export function patternInWords(text: string): string {
  const { segments } = parsePattern(text);
  if (!segments) return text;
  if (segments[0]?.field === 'global') return 'All requests';
  const split = segments.filter(({ each }) => each);
  const fixed = segments.filter(({ each }) => !each);
  const who = split.map(noun).join(' and ');
  if (split.length === 0) return upper([...fixed.slice(0, 1).map(place), ...fixed.slice(1).map(within)].join(' '));
  return upper(`each ${who}${fixed.length > 0 ? ` ${fixed.map(within).join(', ')}` : ''}`);
}

function noun({ field, attribute }: Segment): string {
  return { user: 'user', endpoint: 'endpoint', ip: 'IP address', attr: attribute ?? '', global: '' }[field];
}

function place(segment: Segment): string {
  const { field, value, attribute } = segment;
  if (field === 'user') return `user ${value}`;
  if (field === 'ip') return `${value.includes('/') ? 'network' : 'address'} ${value}`;
  if (field === 'attr') return `${attribute} ${value}`;
  return segment.below ? `everything below ${endpoint(segment)}` : `requests to ${endpoint(segment)}`;
}

function within(segment: Segment): string {
  const { field, value, attribute } = segment;
  if (field === 'user') return `of user ${value}`;
  if (field === 'ip') return `from ${value}`;
  if (field === 'attr') return `with ${attribute} ${value}`;
  return segment.below ? `below ${endpoint(segment)}` : `on ${endpoint(segment)}`;
}

function endpoint({ method, value }: Segment): string {
  return method ? `${method} ${value}` : value;
}

export function upper(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

export function isFound(q: string | undefined, key_pattern: string, ...others: string[]): boolean {
  return !q || hasWords(q, key_pattern, patternInWords(key_pattern), ...others);
}

export function hasWords(query: string, ...texts: (string | undefined)[]): boolean {
  const text = texts.join(' ').toLowerCase();
  const words = query.toLowerCase().split(/\s+/);
  return words.every((word) => text.includes(word));
}
