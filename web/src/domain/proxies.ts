import caddy from '../../../deploy/examples/caddy/Caddyfile?raw';
import envoy from '../../../deploy/examples/envoy/envoy.yaml?raw';
import nginx from '../../../deploy/examples/nginx/sluice.conf?raw';
import type { ProxyName } from './snippets';

/** The files of deploy/examples. `make test` runs nginx and Caddy with theirs, and decodes Envoy's with its types. */
const files: Record<ProxyName, string> = { nginx, caddy, envoy };

export const keyInFiles = 'slk_YOUR_KEY';

export const addressInFiles = '127.0.0.1:8080';

/**
 * The file of a proxy, with the address of Sluice and the key as far as they are known. An address that needs TLS is
 * not
 * filled in: the files connect without.
 */
export function proxyFile(proxy: ProxyName, url: string, key?: string): { code: string; hasAddress: boolean } {
  const { protocol, hostname, port } = new URL(url);
  const hasAddress = protocol === 'http:';
  let code = files[proxy].trimEnd();
  if (hasAddress) {
    const [host, number] = [hostname, port || '80'];
    // Envoy has the two apart, and no brackets around an address of IPv6.
    const parts = (from: string, to: string) => `address: ${from}, port_value: ${to}`;
    code = code
      .replaceAll(parts('127.0.0.1', '8080'), () => parts(`"${host.replace(/^\[|\]$/g, '')}"`, number))
      .replaceAll(addressInFiles, () => `${host}:${number}`);
  }
  if (key) code = code.replaceAll(keyInFiles, () => key);
  return { code, hasAddress };
}
