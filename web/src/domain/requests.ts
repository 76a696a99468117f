import type { Segment } from './pattern';

/** As much of a check as patterns look at. */
export interface Request {
  user?: string;
  method?: string;
  endpoint?: string;
  ip?: string;
  attributes?: Record<string, string>;
}

export interface Match {
  request: Request;
  /** What names the bucket the request takes from; null: the pattern does not match. */
  bucket: string | null;
  /** Why it does not match. */
  reason?: string;
}

/** Whether a request meets a pattern, and whose bucket it takes from, as the server decides it. */
export function matchRequest(segments: Segment[], request: Request): Match {
  const subjects: string[] = [];
  for (const segment of segments) {
    const given = givenFor(segment, request);
    if (segment.field === 'global') continue;
    if (given === undefined || given === '') return { request, bucket: null, reason: `no ${noun(segment)}` };
    if (segment.each) subjects.push(`${noun(segment)} ${given}`);
    else if (segment.method && segment.method !== request.method)
      return { request, bucket: null, reason: 'another method' };
    else if (!holds(segment, given)) return { request, bucket: null, reason: `another ${noun(segment)}` };
  }
  return { request, bucket: subjects.length > 0 ? subjects.join(', ') : 'all matching requests' };
}

function noun({ field, attribute }: Segment): string {
  return field === 'attr' ? `${attribute}` : field === 'ip' ? 'IP address' : field;
}

function givenFor({ field, attribute = '' }: Segment, request: Request): string | undefined {
  if (field === 'attr') return request.attributes?.[attribute];
  return field === 'global' ? '' : request[field];
}

function holds(segment: Segment, given: string): boolean {
  if (segment.below) return given.startsWith(segment.value);
  if (segment.field === 'ip') return inNetwork(segment.value, given);
  return given === segment.value;
}

/** Requests that show what a pattern means: one that matches, one of somebody else, ones that do not. */
export function examples(segments: Segment[]): Match[] {
  const base = typical(segments);
  const requests: Request[] = [base];
  for (const segment of segments) requests.push(other(segment, base));
  const split = segments.find(({ each }) => each);
  if (split) requests.push(lacking(split, base));
  const beneath = segments.find(({ below }) => below);
  if (beneath) requests.push({ ...base, endpoint: beneath.value.slice(0, -1) || '/' });
  if (segments.every(({ field }) => field === 'global')) requests.push({ ...base, user: '43', ip: '198.51.100.7' });
  const seen = new Set<string>();
  return requests
    .filter((request) => {
      const text = JSON.stringify(request);
      return !seen.has(text) && seen.add(text);
    })
    .map((request) => matchRequest(segments, request));
}

function typical(segments: Segment[]): Request {
  const request: Request = { user: '42', method: 'GET', endpoint: '/api/search', ip: '203.0.113.9' };
  for (const { field, each, value, method, below, attribute = '' } of segments) {
    if (method) request.method = method;
    if (field === 'attr') request.attributes = { ...request.attributes, [attribute]: each ? 'acme' : value };
    else if (field === 'ip' && !each) request.ip = value.replace(/\/.*$/, '');
    else if (field === 'endpoint' && below) request.endpoint = `${value}search`;
    else if (field !== 'global' && !each) request[field] = value;
  }
  return request;
}

function other({ field, attribute = '', method }: Segment, base: Request): Request {
  switch (field) {
    case 'user':
      return { ...base, user: base.user === '43' ? '44' : '43' };
    case 'ip':
      return { ...base, ip: '198.51.100.7' };
    case 'attr':
      return { ...base, attributes: { ...base.attributes, [attribute]: 'other' } };
    case 'endpoint':
      return method ? { ...base, method: method === 'GET' ? 'POST' : 'GET' } : { ...base, endpoint: '/other' };
    case 'global':
      return base;
  }
}

function lacking({ field, attribute = '' }: Segment, base: Request): Request {
  if (field === 'attr') return { ...base, attributes: { ...base.attributes, [attribute]: '' } };
  return { ...base, [field]: undefined };
}

/** Whether an address is in a network, or is the address that stands in its place. */
export function inNetwork(network: string, address: string): boolean {
  const [text = '', length] = network.split('/');
  const [a, b] = [bitsOf(text), bitsOf(address)];
  if (!a || !b || a.length !== b.length) return false;
  const bits = length === undefined ? a.length : Number(length);
  return a.slice(0, bits) === b.slice(0, bits);
}

/** An address as its bits, "110010…"; undefined if it is none. */
function bitsOf(address: string): string | undefined {
  const groups = address.includes(':') ? groups6(address) : groups4(address);
  return groups?.map(({ value, width }) => value.toString(2).padStart(width, '0')).join('');
}

interface Group {
  value: number;
  width: number;
}

function groups4(address: string): Group[] | undefined {
  const parts = address.split('.').map((part) => (/^\d{1,3}$/.test(part) ? Number(part) : 256));
  if (parts.length !== 4 || parts.some((part) => part > 255)) return undefined;
  return parts.map((value) => ({ value, width: 8 }));
}

function groups6(address: string): Group[] | undefined {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped) return groups4(mapped);
  const [head = '', tail] = address.split('::');
  const read = (text: string) => (text === '' ? [] : text.split(':'));
  const [before, after] = [read(head), read(tail ?? '')];
  const gap = tail === undefined ? 0 : 8 - before.length - after.length;
  if (gap < 0) return undefined;
  const parts = [...before, ...Array<string>(gap).fill('0'), ...after];
  if (parts.length !== 8 || parts.some((part) => !/^[\da-f]{1,4}$/i.test(part))) return undefined;
  return parts.map((part) => ({ value: Number.parseInt(part, 16), width: 16 }));
}
