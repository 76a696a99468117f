import { SegmentedControl } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { CodeBlock } from '~/components/CodeBlock';
import { Card } from '~/components/Page';
import caddy from '../../../../../deploy/examples/caddy/Caddyfile?raw';
import haproxy from '../../../../../deploy/examples/haproxy/haproxy.cfg?raw';
import lua from '../../../../../deploy/examples/haproxy/sluice.lua?raw';
import nginx from '../../../../../deploy/examples/nginx/sluice.conf?raw';
import styles from './Gateways.module.css';

/** The files of deploy/examples, which `make test` runs in the real proxies. */
const recipes = {
  nginx: [{ name: 'nginx: sluice.conf', code: nginx }],
  Caddy: [{ name: 'Caddyfile', code: caddy }],
  HAProxy: [
    { name: 'haproxy.cfg', code: haproxy },
    { name: 'sluice.lua', code: lua },
  ],
};

/** Configurations of proxies, to paste. */
export function Recipes({ tenant }: { tenant: string }) {
  const [proxy, setProxy] = useState<keyof typeof recipes>('nginx');
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
      actions={
        <SegmentedControl
          size="xs"
          aria-label="Proxy"
          data={Object.keys(recipes)}
          value={proxy}
          onChange={(value) => setProxy(value as keyof typeof recipes)}
        />
      }
    >
      <div className={styles.stack}>
        {recipes[proxy].map(({ name, code }) => (
          <CodeBlock key={name} label={name} code={code.trimEnd()} />
        ))}
      </div>
    </Card>
  );
}
