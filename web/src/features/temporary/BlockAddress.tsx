import { Button } from '@mantine/core';
import { lazy, Suspense, useState } from 'react';

const TemporaryRule = lazy(() => import('./TemporaryRule'));

export function BlockAddress({ tenant, ip }: { tenant: string; ip: string }) {
  const [asks, setAsks] = useState(false);
  return (
    <>
      <Button variant="default" onClick={() => setAsks(true)}>
        Block this address
      </Button>
      {asks && (
        <Suspense fallback={null}>
          <TemporaryRule
            tenant={tenant}
            group={{ by: 'ip', value: ip }}
            action="block"
            onClose={() => setAsks(false)}
          />
        </Suspense>
      )}
    </>
  );
}
