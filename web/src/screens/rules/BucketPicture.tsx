import { SegmentedControl } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { api } from '~/api/client';
import { keepSame } from '~/api/queries';
import type { Timeline } from '~/api/types';
import { Chart } from '~/charts/Chart';
import { Card } from '~/components/Page';
import { ErrorState } from '~/components/states';
import { duration, exactNumber, plural } from '~/domain/format';
import { exactAmount, heldUnit, meterUnit } from '~/domain/meter';
import { hasRate, isValid, type Limit, shapeOf } from '~/domain/rate';
import { useTenant } from '~/session';
import { type Arrivals, bundle, deniedBySlice, pictureOf, type Shape, shaped, streamOf } from './arrivals';
import styles from './BucketPicture.module.css';

interface Props {
  limit: Limit;
}

export function BucketPicture({ limit }: Props) {
  return (
    <Card title="Simulation">
      {!isValid(limit) ? <p className="soft">Enter a valid limit to see the simulation.</p> : <Picture limit={limit} />}
    </Card>
  );
}

function Picture({ limit }: Props) {
  const tenant = useTenant();
  const [shape, setShape] = useState<Shape>('spike');
  const rule = simulated(limit);
  const limitKey = JSON.stringify(rule);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the unit a rate was typed in changes nothing here
  const arrivals = useMemo(() => shaped(shape, limit), [shape, limitKey]);
  const [asked] = useDebouncedValue(
    useMemo(() => ({ arrivals, rule: JSON.parse(limitKey) as Simulated }), [arrivals, limitKey]),
    120,
  );

  const queryKey = ['simulate', tenant, asked]; // nobody's change makes it another
  const simulation = useQuery({
    queryKey,
    enabled: asked.arrivals.counts.some((count) => count > 0),
    placeholderData: keepSame(queryKey),
    queryFn: async ({ signal }) => {
      const timeline = await api.post('/api/v1/tenants/{tenant}/simulate', {
        tenant,
        body: { rules: [asked.rule], arrivals: streamOf(asked.arrivals) },
        signal,
      });
      return { timeline, asked };
    },
  });

  const { data } = simulation;
  const picture = useMemo(
    () =>
      data &&
      pictureOf(
        {
          ...data.asked.rule,
          rate_unit: limit.rate_unit,
          rate_per_second: data.asked.rule.rate_per_second ?? 0,
        },
        data.asked.arrivals,
        data.timeline,
      ),
    [data, limit],
  );
  if (simulation.isError) return <ErrorState error={simulation.error} onRetry={() => simulation.refetch()} />;

  return (
    <div className={styles.picture}>
      <SegmentedControl
        size="xs"
        aria-label="Traffic"
        value={shape}
        onChange={(value) => setShape(value as Shape)}
        data={[
          { value: 'spike', label: 'Spike' },
          { value: 'steady', label: 'Above the rate' },
          { value: 'ramp', label: 'Ramp' },
        ]}
      />
      <div className={styles.chart}>
        {picture && (
          <Chart
            label={data ? inWords(data.timeline, data.asked.arrivals, limit.meter) : 'Tokens over time'}
            x={picture.x}
            height={200}
            elapsed
            yMin={limit.burst_capacity}
            format={(value) => exactNumber(Math.round(value * 100) / 100)}
            series={[
              {
                label: hasRate(limit.algorithm) ? heldUnit(limit.meter) : 'left',
                tone: 'accent',
                values: picture.tokens,
                fill: true,
              },
              { label: 'burst', tone: 'neutral', values: picture.burst, dashed: true },
              { label: 'denied', tone: 'denied', values: picture.denied, points: 'cross' },
            ]}
          />
        )}
      </div>
      <p className={styles.sentence}>{data && inWords(data.timeline, data.asked.arrivals, limit.meter)}</p>
    </div>
  );
}

type Simulated = ReturnType<typeof simulated>;

function simulated(limit: Limit) {
  const parts = Object.entries(shapeOf(limit)).filter(([, value]) => value !== null && value !== undefined);
  return {
    key_pattern: 'global',
    burst_capacity: limit.burst_capacity,
    rate_per_second: hasRate(limit.algorithm) ? limit.rate_per_second : undefined,
    ...(Object.fromEntries(parts) as Partial<ReturnType<typeof shapeOf>>),
  };
}

export function inWords(timeline: Timeline, arrivals: Arrivals, meter: string | undefined): string {
  const total = arrivals.counts.reduce((sum, count) => sum + count, 0);
  const denied = deniedBySlice(arrivals, timeline).reduce((sum, count) => sum + count, 0);
  const time = duration(arrivals.sliceMs * arrivals.counts.length);
  const begin = `${meterUnit(meter) ? exactAmount(total, meter) : plural(total, 'request')} in ${time}: `;
  const each = bundle(arrivals) > 1 ? ` Simulated ${exactNumber(bundle(arrivals))} at a time.` : '';
  const delay = timeline.longest_delay_ms;
  const delayed = delay > 0 ? `; the longest delay of an allowed one is ${duration(delay)}` : '';
  if (timeline.first_denial_ms === null) return `${begin}all allowed${delayed}.${each}`;
  return (
    `${begin}${exactNumber(total - denied)} allowed, ${exactNumber(denied)} denied, the first after ` +
    `${duration(timeline.first_denial_ms)}; the longest wait is ${duration(timeline.longest_wait_ms)}${delayed}.${each}`
  );
}
