import { SegmentedControl } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { CodeBlock } from '~/components/CodeBlock';
import { Card } from '~/components/Page';
import ProxyCode from '~/components/ProxyCode';
import { type ProxyName, proxies } from '~/domain/snippets';
import envoy from '../../../../../deploy/examples/envoy/ratelimit.yaml?raw';
import styles from './Gateways.module.css';

export function HttpRecipes() {
  const [proxy, setProxy] = useState<ProxyName>('nginx');
  return (
    <Card
      title="Connect your proxy"
      actions={
        <SegmentedControl
          size="xs"
          aria-label="Proxy"
          data={proxies.map(({ value, label }) => ({ value, label }))}
          value={proxy}
          onChange={(value) => setProxy(value as ProxyName)}
        />
      }
    >
      <div className={styles.stack}>
        <ProxyCode proxy={proxy} />
      </div>
    </Card>
  );
}

export function EnvoyRecipe({ tenant }: { tenant: string }) {
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
    <Card title="Connect your proxy" lead={lead}>
      <CodeBlock label="Envoy: ratelimit.yaml" code={envoy} />
    </Card>
  );
}
