import ipaddr from 'ipaddr.js';

/**
 * Key patterns: which requests a rule matches, and which of them share a bucket. The builder takes them apart and
 * describes them. internal/rules/pattern.go defines the grammar; internal/rules/testdata/grammar.yaml holds both
 * parsers to it, error messages included.
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

const maxBytes = { pattern: 512, user: 256, value: 256, name: 64 };

export function parsePattern(text: string): Parsed {
  try {
    return { segments: parseSegments(text) };
  } catch (error) {
    if (error instanceof PatternError) return { error: error.message };
    throw error;
  }
}

function parseSegments(text: string): Segment[] {
  const scan = new Scanner(text);
  scan.checkText();
  if (text === 'global') return [{ field: 'global', each: false, value: '' }];
  const segments: Segment[] = [];
  while (true) {
    const start = scan.at;
    const segment = scan.segment();
    if (segments.some((one) => nameOf(one) === nameOf(segment))) {
      throw scan.error(start, `${nameOf(segment)} stands here a second time: each field can be given once`);
    }
    segments.push(segment);
    if (scan.done) return ordered(segments);
    if (!scan.skip(':')) throw scan.error(scan.at, `expected ':' or the end, found ${quote(scan.rest)}`);
  }
}

class PatternError extends Error {}

const byteLength = (text: string) => new TextEncoder().encode(text).length;

const quote = (text: string) => JSON.stringify(text);

/** What Go's strings.TrimSpace removes; String.trim differs by two characters. */
const space = '[\\t-\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]';
const spaceAround = new RegExp(`^${space}|${space}$`);

/** One {word} and nothing else. */
const braced = /^\{[^{}]*\}$/;

/** Reads a pattern from left to right, as patternScanner does in Go. */
class Scanner {
  at = 0;
  constructor(private readonly text: string) {}

  get done() {
    return this.at === this.text.length;
  }

  get rest() {
    return this.text.slice(this.at);
  }

  /** An error at a character of the text. Messages count bytes, as the server does. */
  error(at: number, message: string): PatternError {
    return new PatternError(`at byte ${byteLength(this.text.slice(0, at))}: ${message}`);
  }

  checkText() {
    if (this.text === '') {
      throw this.error(0, 'expected global, or a segment such as user:{user_id}, found nothing');
    }
    const length = byteLength(this.text);
    if (length > maxBytes.pattern) {
      throw new PatternError(
        `at byte ${maxBytes.pattern}: expected the end: a pattern has at most ${maxBytes.pattern} bytes, this ` +
          `one has ${length}`,
      );
    }
    const nul = this.text.indexOf('\0');
    if (nul >= 0) throw this.error(nul, 'expected text, found a NUL byte');
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
    const start = this.at;
    const quoted = this.skip('"');
    const text = quoted ? this.quoted(start) : this.bare();
    if (!quoted && braced.test(text)) return this.placeholder(segment, text, start);
    const problem = this.setValue(segment, text, quoted);
    if (problem) throw this.error(start, problem);
    return segment;
  }

  private field(): Segment {
    const start = this.at;
    const name = this.upTo(/:/);
    const segment: Segment = { field: name as Field, each: false, value: '' };
    if (name.startsWith('attr.')) {
      segment.field = 'attr';
      segment.attribute = name.slice('attr.'.length);
      if (!/^[\w.-]{1,64}$/.test(segment.attribute)) {
        throw this.error(
          start + 'attr.'.length,
          `expected an attribute's name of 1 to ${maxBytes.name} letters, digits, '_', '.' or '-', found ` +
            `${quote(segment.attribute)}`,
        );
      }
    } else if (name === 'global') {
      throw this.error(start, 'global stands alone: a pattern is either global or made of the other fields');
    } else if (!['user', 'endpoint', 'ip'].includes(name)) {
      throw this.error(
        start,
        `expected user, endpoint, ip or attr.NAME, found ${quote(name)}; a value that contains ':' is written ` +
          'in double quotes',
      );
    }
    if (!this.skip(':')) throw this.error(this.at, `expected ':' and a value after ${name}`);
    return segment;
  }

  private bare(): string {
    const start = this.at;
    const text = this.upTo(/[:"]/);
    if (this.rest.startsWith('"')) {
      throw this.error(
        this.at,
        'expected no quote inside a bare value: write the whole value in double quotes, and each quote in it twice',
      );
    }
    if (text === '') {
      throw this.error(start, "expected a value, found nothing; a value that contains ':' is written in double quotes");
    }
    if (spaceAround.test(text)) {
      throw this.error(
        start,
        `expected a value without space around it, found ${quote(text)}; if the space belongs to it, write it ` +
          'in double quotes',
      );
    }
    return text;
  }

  private quoted(start: number): string {
    let text = '';
    while (true) {
      text += this.upTo(/"/);
      if (!this.skip('"')) {
        const opened = byteLength(this.text.slice(0, start));
        throw this.error(this.at, `expected the closing quote of the value that begins at byte ${opened}`);
      }
      if (!this.skip('"')) break;
      text += '"';
    }
    if (text === '') throw this.error(start, 'expected a value, found nothing between the quotes');
    return text;
  }

  private placeholder(segment: Segment, text: string, at: number): Segment {
    if (text !== placeholderOf(segment)) {
      throw this.error(
        at,
        `unknown placeholder ${text}: ${nameOf(segment)} takes ${placeholderOf(segment)}, or ${quote(text)} ` +
          'in double quotes for that very text',
      );
    }
    if (segment.method) {
      throw this.error(
        at,
        `expected an endpoint after the method ${segment.method}, found ${text}, which stands for all of them`,
      );
    }
    return { ...segment, each: true };
  }

  /** Sets the value that a segment matches, and returns what is wrong with it, if anything is. */
  private setValue(segment: Segment, text: string, quoted: boolean): string | undefined {
    segment.value = text;
    switch (segment.field) {
      case 'ip': {
        const network = parseNetwork(text);
        segment.value = network.value;
        return network.problem;
      }
      case 'endpoint':
        if (quoted) {
          if (this.skip('*')) segment.below = true;
        } else if (text.endsWith('/*')) {
          segment.value = text.slice(0, -1);
          segment.below = true;
        }
        return endpointProblem(segment, quoted);
      case 'user':
        return lengthProblem('a user id', text, maxBytes.user);
      default:
        return lengthProblem("an attribute's value", text, maxBytes.value);
    }
  }
}

function endpointProblem({ value, below }: Segment, quoted: boolean): string | undefined {
  if (quoted) {
    return below && !value.endsWith('/')
      ? `expected '/' before the star: it matches what lies below a path, as in ${quote(`${value}/`)}*`
      : undefined;
  }
  if (value.includes('*')) {
    return (
      "expected '*' only at the end, after '/', as in /api/*; if the star belongs to a route template, " +
      `write it in double quotes: ${quote(value)}`
    );
  }
  if (value.includes(' ')) {
    return (
      'expected no space except after a method in capital letters; if it belongs to the endpoint, write it ' +
      `in double quotes: ${quote(value)}`
    );
  }
  return undefined;
}

function lengthProblem(what: string, text: string, most: number): string | undefined {
  const length = byteLength(text);
  return length > most ? `expected ${what} of at most ${most} bytes, found ${length}` : undefined;
}

/** Reads an address, or a network in CIDR notation, and returns its shortest text. Mapped addresses become IPv4. */
function parseNetwork(text: string): { value: string; problem?: string } {
  const [, host = '', length] = /^([^/%]*)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? [];
  const valid = host.includes(':') ? ipaddr.IPv6.isValid(host) : ipaddr.IPv4.isValidFourPartDecimal(host);
  let address = valid ? ipaddr.parse(host) : undefined;
  let bits = Number(length ?? (address?.kind() === 'ipv6' ? 128 : 32));
  if (!address || bits > (address.kind() === 'ipv6' ? 128 : 32)) {
    return {
      value: text,
      problem:
        'expected {ip}, an address such as 203.0.113.7 or "2001:db8::1" in quotes, or a network such as ' +
        `203.0.113.0/24, found ${quote(text)}`,
    };
  }
  if (address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() && bits >= 96) {
    address = address.toIPv4Address();
    bits -= 96;
  }
  const cidr = `${address}/${bits}`;
  const network =
    address instanceof ipaddr.IPv6
      ? ipaddr.IPv6.networkAddressFromCIDR(cidr)
      : ipaddr.IPv4.networkAddressFromCIDR(cidr);
  if (network.toString() !== address.toString()) {
    return {
      value: text,
      problem: `expected a network without host bits: ${shortest(address)} lies in ${shortest(network)}/${bits}`,
    };
  }
  const single = bits === (address.kind() === 'ipv6' ? 128 : 32);
  return { value: single ? shortest(address) : `${shortest(address)}/${bits}` };
}

function shortest(address: ipaddr.IPv4 | ipaddr.IPv6): string {
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
}

function placeholderOf(segment: Segment): string {
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
  return segments.toSorted((a, b) => rank(a) - rank(b) || compare(a.attribute ?? '', b.attribute ?? ''));
}

const compare = (a: string, b: string) => (a < b ? -1 : Number(a > b));

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
  if (segment.each) return `${nameOf(segment)}:${placeholderOf(segment)}`;
  const { value, field } = segment;
  const quoted =
    /[:"]/.test(value) || spaceAround.test(value) || braced.test(value) || (field === 'endpoint' && /[ *]/.test(value));
  const text = quoted ? `"${value.replaceAll('"', '""')}"` : value;
  return `${nameOf(segment)}:${segment.method ? `${segment.method} ` : ''}${text}${segment.below ? '*' : ''}`;
}

/** Whether each user has own buckets, so that one user's limit can be another. */
export function splitsByUser(text: string): boolean {
  return parsePattern(text).segments?.some(({ field, each }) => field === 'user' && each) ?? false;
}

/**
 * What a pattern matches, in words: "Each user", "Each user on POST /v1/charges", "Everything below /api/".
 * What does not begin with "Each" shares one bucket. The text itself if it is no pattern.
 */
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

function upper(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** Whether a search finds a rule: each word stands in its pattern, in the pattern's words, or in the other texts. */
export function isFound(q: string | undefined, key_pattern: string, ...others: string[]): boolean {
  if (!q) return true;
  const text = [key_pattern, patternInWords(key_pattern), ...others].join(' ').toLowerCase();
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
