import { Skeleton } from '@mantine/core';
import { useIntersection } from '@mantine/hooks';
import { lazy, Suspense, useRef } from 'react';
import type { ChartProps } from './chart';
import { Legend } from './Legend';

const Canvas = lazy(() => import('./ChartCanvas'));

export function Chart(props: ChartProps) {
  const height = props.height ?? 180;
  const { ref, entry } = useIntersection({ rootMargin: '200px' });
  const isNear = useRef(false);
  isNear.current ||= entry?.isIntersecting ?? false;
  const awaited = (
    <>
      <Skeleton height={height} radius="md" />
      <Legend {...props} cursor={null} />
    </>
  );
  return (
    <div ref={ref} className="chart">
      {isNear.current ? (
        <Suspense fallback={awaited}>
          <Canvas {...props} height={height} />
        </Suspense>
      ) : (
        awaited
      )}
    </div>
  );
}
