/**
 * Key patterns, read and written as the server does (internal/rules/pattern.go has the grammar and the
 * last word): which requests a rule matches, and which of them share a bucket. Here they are taken apart
 * for the builder and said in words.
 */
export type Field = 'user' | 'endpoint' | 'ip' | 'attr' | 'global';

export interface Segment {
  field: Field;
  /** The attribute's name, of attr. */
  attribute?: string;
  /** Any value matches, and each has its own bucket. */
  each: boolean;
  /** Otherwise the value that matches; with below, the part up to the star. */
  value: string;
  /** Of endpoint: this method alone. */
  method?: string;
  below?: boolean;
}

export type Parsed = { segments: Segment[]; error?: undefined } | { error: string; segments?: undefined };

const maxBytes = 512;

export function parsePattern(text: string): Parsed {
  if (text === '') return { error: 'Choose what is limited, or type a pattern such as user:{user_id}.' };
  if (new TextEncoder().encode(text).length > maxBytes)
    return { error: `A pattern has at most ${maxBytes} bytes.` };
  if (text === 'global') return { segments: [{ field: 'global', each: false, value: '' }] };
  const segments: Segment[] = [];
  try {
    const scan = new Scanner(text);
    while (true) {
      const segment = scan.segment();
      if (segments.some((one) => nameOf(one) === nameOf(segment))) {
        return { error: `${nameOf(segment)} is given twice.` };
      }
      segments.push(segment);
      if (scan.done) return { segments: ordered(segments) };
      if (!scan.skip(':')) return { error: `Expected ':' or the end before ${scan.rest}.` };
    }
  } catch (error) {
    if (error instanceof PatternError) return { error: error.message };
    throw error;
  }
}

class PatternError extends Error {}

class Scanner {
  private at = 0;
  constructor(private readonly text: string) {}

  get done() {
    return this.at === this.text.length;
  }

  get rest() {
    return this.text.slice(this.at);
  }

  skip(char: string): boolean {
    if (this.text[this.at] !== char) return false;
    this.at++;
    return true;
  }

  private upTo(stop: RegExp): string {
    const length = this.rest.search(stop);
    const found = length < 0 ? this.rest : this.rest.slice(0, length);
    this.at += found.length;
    return found;
  }

  segment(): Segment {
    const segment = this.field();
    if (segment.field === 'endpoint') {
      const method = /^([A-Z][A-Z_-]*) /.exec(this.rest)?.[1];
      if (method) {
        segment.method = method;
        this.at += method.length + 1;
      }
    }
    const quoted = this.skip('"');
    const text = quoted ? this.quoted() : this.bare();
    if (!quoted && /^\{[\w.-]*\}$/.test(text)) return asPlaceholder(segment, text);
    segment.value = text;
    if (segment.field === 'endpoint') this.star(segment, quoted);
    return segment;
  }

  private field(): Segment {
    const name = this.upTo(/:/);
    const attribute = /^attr\.([\w.-]{1,64})$/.exec(name)?.[1];
    if (!attribute && !['user', 'endpoint', 'ip'].includes(name)) {
      throw new PatternError(
        name === 'global'
          ? 'global stands alone.'
          : `Expected user, endpoint, ip or attr.NAME, found ${name || 'nothing'}. A value that contains ':' is written in double quotes.`,
      );
    }
    if (!this.skip(':')) throw new PatternError(`Expected ':' and a value after ${name}.`);
    return attribute
      ? { field: 'attr', attribute, each: false, value: '' }
      : { field: name as Field, each: false, value: '' };
  }

  private bare(): string {
    const text = this.upTo(/[:"]/);
    if (this.rest.startsWith('"')) throw new PatternError('Write the whole value in double quotes.');
    if (text === '') throw new PatternError('A value is missing.');
    if (text.trim() !== text) throw new PatternError('A space at the end belongs into double quotes.');
    return text;
  }

  private quoted(): string {
    let text = '';
    while (true) {
      text += this.upTo(/"/);
      if (!this.skip('"')) throw new PatternError('The closing quote is missing.');
      if (!this.skip('"')) break;
      text += '"';
    }
    if (text === '') throw new PatternError('There is nothing between the quotes.');
    return text;
  }

  private star(segment: Segment, quoted: boolean) {
    if (quoted) {
      if (this.skip('*')) segment.below = true;
    } else if (segment.value.endsWith('/*')) {
      segment.value = segment.value.slice(0, -1);
      segment.below = true;
    }
    if (segment.below && !segment.value.endsWith('/'))
      throw new PatternError("Expected '/' before the star.");
    if (!quoted && segment.value.includes('*'))
      throw new PatternError("A star stands at the end, after '/'.");
    if (!quoted && segment.value.includes(' ')) {
      throw new PatternError(
        'A space stands only after a method in capital letters; otherwise use double quotes.',
      );
    }
  }
}

function asPlaceholder(segment: Segment, text: string): Segment {
  if (text !== placeholder(segment)) {
    throw new PatternError(`${nameOf(segment)} takes ${placeholder(segment)}, not ${text}.`);
  }
  if (segment.method) throw new PatternError('{endpoint} stands for all of them, without a method.');
  return { ...segment, each: true };
}

function placeholder(segment: Segment): string {
  return segment.field === 'user' ? '{user_id}' : `{${nameOf(segment)}}`;
}

/** What stands before the segment's colon. */
export function nameOf(segment: Segment): string {
  return segment.field === 'attr' ? `attr.${segment.attribute}` : segment.field;
}

/** The order in which the server prints segments: the scope's first, then user, attr, endpoint, ip. */
function ordered(segments: Segment[]): Segment[] {
  const scope = scopeOf(segments);
  const order: Field[] = ['user', 'attr', 'endpoint', 'ip'];
  const rank = (one: Segment) => (one.field === scope && scope !== 'user' ? -1 : order.indexOf(one.field));
  return segments.toSorted(
    (a, b) => rank(a) - rank(b) || (a.attribute ?? '').localeCompare(b.attribute ?? '', 'en'),
  );
}

/** The tier of limit: the first segment's field; attributes belong to the user. */
export function scopeOf(segments: Segment[]): 'user' | 'endpoint' | 'ip' | 'global' {
  const field = segments[0]?.field ?? 'global';
  return field === 'attr' ? 'user' : field;
}

/** The pattern's text, with quotes only where they must be. */
export function printPattern(segments: Segment[]): string {
  return segments.map(printSegment).join(':');
}

function printSegment(segment: Segment): string {
  if (segment.field === 'global') return 'global';
  if (segment.each) return `${nameOf(segment)}:${placeholder(segment)}`;
  const { value, field } = segment;
  const quoted =
    /[:"]/.test(value) ||
    value.trim() !== value ||
    /^\{[\w.-]*\}$/.test(value) ||
    (field === 'endpoint' && /[ *]/.test(value));
  const text = quoted ? `"${value.replaceAll('"', '""')}"` : value;
  return `${nameOf(segment)}:${segment.method ? `${segment.method} ` : ''}${text}${segment.below ? '*' : ''}`;
}

/** Whether each user has own buckets, so that one user's limit can be another. */
export function splitsByUser(text: string): boolean {
  return parsePattern(text).segments?.some(({ field, each }) => field === 'user' && each) ?? false;
}

/**
 * What a pattern limits, in words: "Each user", "Each user on POST /v1/charges", "Everything below /api/
 * together". The text itself if it is no pattern.
 */
export function patternInWords(text: string): string {
  const { segments } = parsePattern(text);
  if (!segments) return text;
  if (segments[0]?.field === 'global') return 'All requests together';
  const split = segments.filter(({ each }) => each);
  const fixed = segments.filter(({ each }) => !each);
  const who = split.map(noun).join(' and ');
  const where = fixed.map(place);
  if (split.length === 0) return upper(`${where.join(', ')}${isOne(fixed) ? '' : ' together'}`);
  return upper(`each ${who}${where.length > 0 ? ` ${fixed.map(within).join(', ')}` : ''}`);
}

function isOne(fixed: Segment[]): boolean {
  return fixed.length === 1 && fixed[0]?.field === 'user';
}

function noun({ field, attribute }: Segment): string {
  return { user: 'user', endpoint: 'endpoint', ip: 'IP address', attr: attribute ?? '', global: '' }[field];
}

function place(segment: Segment): string {
  const { field, value, attribute } = segment;
  if (field === 'user') return `user ${value}`;
  if (field === 'ip') return value.includes('/') ? `addresses in ${value}` : `address ${value}`;
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

function upper(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
