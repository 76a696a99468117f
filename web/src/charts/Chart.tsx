import { Skeleton } from '@mantine/core';
import { lazy, Suspense } from 'react';
import type { ChartProps } from './chart';

const Canvas = lazy(() => import('./ChartCanvas'));

/** A chart, loaded when the first one is looked at. Its place is kept meanwhile. */
export function Chart(props: ChartProps) {
  const height = props.height ?? 180;
  return (
    <Suspense fallback={<Skeleton height={height} radius="md" />}>
      <Canvas {...props} height={height} />
    </Suspense>
  );
}
