import { Button } from '@mantine/core';
import { useState } from 'react';
import { later } from '~/components/later';

const TemporaryRule = later(() => import('./TemporaryRule'));

export function BlockAddress({ tenant, ip }: { tenant: string; ip: string }) {
  const [asks, setAsks] = useState(false);
  return (
    <>
      <Button variant="default" onClick={() => setAsks(true)}>
        Block this address
      </Button>
      {asks && (
        <TemporaryRule tenant={tenant} group={{ by: 'ip', value: ip }} action="block" onClose={() => setAsks(false)} />
      )}
    </>
  );
}
