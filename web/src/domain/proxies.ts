import type { AuthorizeMapping } from '~/api/types';
import caddy from '../../../deploy/examples/caddy/Caddyfile?raw';
import envoy from '../../../deploy/examples/envoy/envoy.yaml?raw';
import haproxy from '../../../deploy/examples/haproxy/haproxy.cfg?raw';
import lua from '../../../deploy/examples/haproxy/sluice.lua?raw';
import nginx from '../../../deploy/examples/nginx/sluice.conf?raw';
import type { ProxyName } from './snippets';

export interface ProxyFile {
  name: string;
  code: string;
}

/** The files of deploy/examples, which `make test` runs in the real proxies; Envoy's is decoded with its types. */
const files: Record<ProxyName, ProxyFile[]> = {
  nginx: [{ name: 'sluice.conf', code: nginx }],
  caddy: [{ name: 'Caddyfile', code: caddy }],
  haproxy: [
    { name: 'haproxy.cfg', code: haproxy },
    { name: 'sluice.lua', code: lua },
  ],
  envoy: [{ name: 'envoy.yaml', code: envoy }],
};

export const keyInFiles = 'slk_YOUR_KEY';

export const addressInFiles = '127.0.0.1:8080';

/** Whether an address can stand in the files, which connect without TLS. */
export const fits = (url: string) => new URL(url).protocol === 'http:';

/**
 * The files of a proxy, which hand Sluice the headers that the mapping reads. The address of Sluice and the key are
 * filled in as far as they are known.
 */
export function proxyFiles(proxy: ProxyName, url: string, key?: string, mapping: AuthorizeMapping = {}): ProxyFile[] {
  return files[proxy].map(({ name, code }) => {
    let made = withMapping[proxy](code, new Headers(mapping));
    if (fits(url)) made = withAddress(made, new URL(url));
    if (key) made = made.replaceAll(keyInFiles, () => key);
    return { name, code: made };
  });
}

function withAddress(code: string, { hostname, port }: URL): string {
  const number = port || '80';
  // Envoy has the two apart, and no brackets around an address of IPv6.
  const parts = (from: string, to: string) => `address: ${from}, port_value: ${to}`;
  return code
    .replaceAll(parts('127.0.0.1', '8080'), () => parts(`"${hostname.replace(/^\[|\]$/g, '')}"`, number))
    .replaceAll(addressInFiles, () => `${hostname}:${number}`);
}

/** The headers of a request that a mapping reads. */
class Headers {
  /** Without those that all files set. */
  readonly more: string[];
  readonly trustedHops: number;

  constructor({ user, plan, cost, endpoint, address, attributes = {}, jwt }: AuthorizeMapping) {
    const read = [
      user?.header,
      plan?.header,
      cost?.header,
      endpoint?.header,
      endpoint?.method_header,
      address?.header,
      ...Object.values(attributes).map(({ header }) => header),
      jwt && (jwt.header ?? 'Authorization'),
    ];
    const known = new Map(read.filter((name) => name !== undefined).map((name) => [name.toLowerCase(), name]));
    for (const name of ['x-forwarded-uri', 'x-forwarded-method', 'x-forwarded-for']) known.delete(name);
    // A configuration file gives other characters a meaning.
    this.more = [...known.values()].filter((name) => /^[A-Za-z0-9-]+$/.test(name));
    this.trustedHops = address?.trusted_hops ?? 0;
  }

  has(name: string): boolean {
    return this.more.some((one) => one.toLowerCase() === name);
  }
}

const withMapping: Record<ProxyName, (code: string, headers: Headers) => string> = {
  nginx: (code, headers) => {
    let made = code;
    if (headers.more.length > 0) {
      made = replaceLine(made, '# For mappings that read them:', (indent) =>
        headers.more.map((name) => `${indent}proxy_set_header ${name} $http_${variable(name)};`),
      );
    }
    if (headers.has('x-user')) made = replaceLine(made, 'proxy_set_header X-User ""', () => []);
    if (headers.trustedHops > 0) {
      made = made
        .replace('$remote_addr; # $proxy_add_x_forwarded_for behind trusted proxies', '$remote_addr;')
        .replaceAll('X-Forwarded-For $remote_addr;', () => 'X-Forwarded-For $proxy_add_x_forwarded_for;');
    }
    return made;
  },
  caddy: (code, headers) => {
    let made = code;
    if (headers.has('x-user')) made = replaceLine(made, 'request_header -X-User', () => []);
    if (headers.trustedHops > 0) {
      made = replaceLine(made, 'uri /v1/authorize', (indent, line) => [
        line,
        `${indent}trusted_proxies private_ranges`,
      ]);
    }
    return made;
  },
  haproxy: (code, headers) => {
    let made = code;
    if (headers.more.length > 0) {
      made = replaceLine(made, '-- For mappings that read it:', (indent) =>
        headers.more
          .map((name) => name.toLowerCase())
          .map((name) => `${indent}["${name}"] = { txn.f:req_fhdr("${name}") },`),
      );
    }
    if (headers.has('x-user')) made = replaceLine(made, 'http-request del-header X-User', () => []);
    if (headers.trustedHops > 0) {
      made = made.replace('{ txn.f:src() }', '{ txn.f:req_fhdr("x-forwarded-for"), txn.f:src() }');
    }
    return made;
  },
  envoy: (code, headers) => {
    const patterns = headers.more.map((name) => `, {exact: ${name.toLowerCase()}}`).join('');
    const made = code.replace('[{exact: x-forwarded-for}', (start) => start + patterns);
    return headers.has('x-user') ? made.replace('[x-user, x-sluice-key]', '[x-sluice-key]') : made;
  },
};

const variable = (header: string) => header.toLowerCase().replaceAll('-', '_');

/** Puts lines in the place of the one that has a text. */
function replaceLine(code: string, text: string, by: (indent: string, line: string) => string[]): string {
  return code
    .split('\n')
    .flatMap((line) => (line.includes(text) ? by(/^\s*/.exec(line)?.[0] ?? '', line) : [line]))
    .join('\n');
}
