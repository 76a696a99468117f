import { SegmentedControl } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { CodeBlock } from '~/components/CodeBlock';
import { Card } from '~/components/Page';
import caddy from '../../../../../deploy/examples/caddy/Caddyfile?raw';
import envoy from '../../../../../deploy/examples/envoy/ratelimit.yaml?raw';
import haproxy from '../../../../../deploy/examples/haproxy/haproxy.cfg?raw';
import lua from '../../../../../deploy/examples/haproxy/sluice.lua?raw';
import nginx from '../../../../../deploy/examples/nginx/sluice.conf?raw';
import styles from './Gateways.module.css';

/** The files of deploy/examples, which `make test` runs in the real proxies. */
export const httpRecipes: Recipes = {
  nginx: [{ name: 'nginx: sluice.conf', code: nginx }],
  Caddy: [{ name: 'Caddyfile', code: caddy }],
  HAProxy: [
    { name: 'haproxy.cfg', code: haproxy },
    { name: 'sluice.lua', code: lua },
  ],
};

/** Nobody has run it with Envoy yet, and it says so. */
export const envoyRecipes: Recipes = { Envoy: [{ name: 'Envoy: ratelimit.yaml', code: envoy }] };

type Recipes = Record<string, { name: string; code: string }[]>;

export function Recipes({ tenant, recipes }: { tenant: string; recipes: Recipes }) {
  const proxies = Object.keys(recipes);
  const [proxy, setProxy] = useState(proxies[0] ?? '');
  const lead = (
    <>
      Replace the addresses, and <code>slk_YOUR_KEY</code> with an{' '}
      <Link to="/t/$tenant/settings/$section" params={{ tenant, section: 'keys' }}>
        API key
      </Link>{' '}
      that may check.
    </>
  );
  return (
    <Card
      title="Connect your proxy"
      lead={lead}
      actions={<SegmentedControl size="xs" aria-label="Proxy" data={proxies} value={proxy} onChange={setProxy} />}
    >
      <div className={styles.stack}>
        {recipes[proxy]?.map(({ name, code }) => (
          <CodeBlock key={name} label={name} code={code.trimEnd()} />
        ))}
      </div>
    </Card>
  );
}
