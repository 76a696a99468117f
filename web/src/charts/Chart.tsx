import { Skeleton } from '@mantine/core';
import { lazy, Suspense } from 'react';
import type { ChartProps } from './chart';
import { Legend } from './Legend';

const Canvas = lazy(() => import('./ChartCanvas'));

/** A chart, loaded when the first one is looked at. Its place is kept meanwhile. */
export function Chart(props: ChartProps) {
  const height = props.height ?? 180;
  return (
    <Suspense
      fallback={
        <div className="chart">
          <Skeleton height={height} radius="md" />
          <Legend {...props} cursor={null} />
        </div>
      }
    >
      <Canvas {...props} height={height} />
    </Suspense>
  );
}
