import type { AuthorizeMapping } from '~/api/types';
import caddy from '../../../deploy/examples/caddy/Caddyfile?raw';
import envoy from '../../../deploy/examples/envoy/envoy.yaml?raw';
import haproxy from '../../../deploy/examples/haproxy/haproxy.cfg?raw';
import lua from '../../../deploy/examples/haproxy/sluice.lua?raw';
import nginx from '../../../deploy/examples/nginx/sluice.conf?raw';
import type { ProxyName } from './snippets';

interface ProxyFile {
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

export function fits(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { protocol, pathname } = new URL(url);
  return protocol === 'http:' && pathname === '/';
}

export function proxyFiles(proxy: ProxyName, url: string, key?: string, mapping: AuthorizeMapping = {}): ProxyFile[] {
  return files[proxy].map(({ name, code }) => {
    let made = withMapping[proxy](code, headersOf(mapping), (mapping.address?.trusted_hops ?? 0) > 0);
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

/** The source is the operator where visitors would choose their own plan or cost. */
interface Header {
  name: string;
  from: 'visitor' | 'uri' | 'method' | 'operator' | 'nowhere';
}

function headersOf({
  user,
  plan,
  cost,
  costs = {},
  endpoint,
  address,
  attributes = {},
  jwt,
}: AuthorizeMapping): Header[] {
  const read: [string | undefined, Header['from']][] = [
    [endpoint?.header, 'uri'],
    [endpoint?.method_header, 'method'],
    [address?.header, 'operator'],
    [jwt && (jwt.header ?? 'Authorization'), 'visitor'],
    [user?.header, 'visitor'],
    [plan?.header, 'operator'],
    [cost?.header, 'operator'],
    ...[...Object.values(costs), ...Object.values(attributes)].map(
      ({ header }): [string | undefined, Header['from']] => [header, 'operator'],
    ),
  ];
  const headers = new Map<string, Header>();
  for (const [name, from] of read) {
    const key = name?.toLowerCase();
    if (!name || !key || headers.has(key) || ofAllFiles.has(key)) continue;
    headers.set(key, { name, from: /^[a-z0-9-]+$/.test(key) && !ofConnections.has(key) ? from : 'nowhere' });
  }
  return [...headers.values()];
}

const ofAllFiles = new Set(['x-forwarded-uri', 'x-forwarded-method', 'x-forwarded-for']);

/** Another value of these would break the question itself. */
const ofConnections = new Set(['host', 'connection', 'content-length', 'transfer-encoding', 'upgrade']);

const withMapping: Record<ProxyName, (code: string, headers: Header[], isBehindProxies: boolean) => string> = {
  nginx: (code, headers, isBehindProxies) => {
    const values = { uri: '$request_uri', method: '$request_method' };
    const made = withHeaders(code, '# For mappings that read them:', headers, ({ name, from }) => {
      if (from === 'operator') return `# proxy_set_header ${name} …; # for you to set, never visitors`;
      if (from === 'nowhere') return `# ${unknown(name)}`;
      const value = from === 'visitor' ? `$http_${name.toLowerCase().replaceAll('-', '_')}` : values[from];
      return `proxy_set_header ${name} ${value};`;
    });
    if (!isBehindProxies) return made;
    return made
      .replace('$remote_addr; # $proxy_add_x_forwarded_for behind trusted proxies', '$remote_addr;')
      .replaceAll('X-Forwarded-For $remote_addr;', () => 'X-Forwarded-For $proxy_add_x_forwarded_for;');
  },
  caddy: (code, headers, isBehindProxies) => {
    const values = { uri: '{uri}', method: '{method}' };
    let made = replaceLine(code, 'uri /v1/authorize', (indent, line) => [
      line,
      ...(isBehindProxies
        ? [`${indent}trusted_proxies private_ranges # or the networks of the proxies before it`]
        : []),
      ...headers.flatMap(({ name, from }) =>
        from === 'uri' || from === 'method' ? [`${indent}header_up ${name} ${values[from]}`] : [],
      ),
    ]);
    made = replaceLine(made, 'request_header -X-Sluice-Key', (indent, line) => [
      line,
      ...headers.flatMap(({ name, from }) => {
        if (from === 'nowhere') return [`${indent}# ${unknown(name)}`];
        return from === 'operator' ? [`${indent}request_header -${name} # for you to set, never visitors`] : [];
      }),
    ]);
    return moveLine(made, headers, 'request_header -X-User', '@limited expression');
  },
  haproxy: (code, headers, isBehindProxies) => {
    const values = { uri: 'txn.f:pathq()', method: 'txn.f:method()' };
    let made = withHeaders(code, '-- For mappings that read it:', headers, ({ name, from }) => {
      const key = name.toLowerCase();
      if (from === 'operator') return `-- ["${key}"] = { … }, for you to set, never visitors`;
      if (from === 'nowhere') return `-- ${unknown(name)}`;
      return `["${key}"] = { ${from === 'visitor' ? `txn.f:req_fhdr("${key}")` : values[from]} },`;
    });
    if (isBehindProxies) {
      made = made
        .replace('["x-forwarded-for"] = { txn.f:src() }', '["x-forwarded-for"] = forwarded(txn)')
        .replace('core.register_action', () => `${forwarded}\ncore.register_action`);
    }
    return moveLine(made, headers, 'http-request del-header X-User', 'http-request return status 429');
  },
  envoy: (code, headers) => {
    const allowed = headers.filter(({ from }) => from === 'visitor');
    const others = headers.filter(({ from }) => from !== 'visitor').map(({ name }) => name);
    const patterns = allowed.map(({ name }) => `, {exact: ${name.toLowerCase()}}`).join('');
    return replaceLine(code, 'allowed_headers:', (indent, line) => [
      ...(others.length > 0
        ? [`${indent}# The mapping also reads ${others.join(', ')}: set them, and allow them here`]
        : []),
      line.replace('[{exact: x-forwarded-for}', (start) => start + patterns),
    ]);
  },
};

const unknown = (name: string) => `The mapping also reads ${name}, which this file cannot hand on`;

const forwarded = `local function forwarded(txn)
  local lines, all, at = {}, txn.http:req_get_headers()["x-forwarded-for"] or {}, 0
  while all[at] do
    lines[#lines + 1] = all[at]
    at = at + 1
  end
  lines[#lines + 1] = txn.f:src()
  return lines
end
`;

/** Sends X-User along, if the mapping reads it, before the header is removed for the app. */
function moveLine(code: string, headers: Header[], text: string, before: string): string {
  if (!headers.some(({ name }) => name.toLowerCase() === 'x-user')) return code;
  let moved: string[] = [];
  const without = replaceLine(code, text, (_, line) => {
    moved = [line];
    return [];
  });
  let isFirst = true;
  return replaceLine(without, before, (_, line) => {
    const lines = isFirst ? [...moved, line] : [line];
    isFirst = false;
    return lines;
  });
}

function replaceLine(code: string, text: string, by: (indent: string, line: string) => string[]): string {
  return code
    .split('\n')
    .flatMap((line) => (line.includes(text) ? by(/^\s*/.exec(line)?.[0] ?? '', line) : [line]))
    .join('\n');
}

function withHeaders(code: string, text: string, headers: Header[], write: (header: Header) => string): string {
  if (headers.length === 0) return code;
  return replaceLine(code, text, (indent) => headers.map((header) => indent + write(header)));
}
