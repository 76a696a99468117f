import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { serverNow } from '~/api/clock';
import { seriesQuery } from '~/api/traffic';
import type { Series } from '~/api/types';
import { Chart } from '~/charts/Chart';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { perMinuteText, shortNumber } from '~/domain/format';
import { type Span, wholeSteps } from '~/domain/range';
import styles from './Overview.module.css';
import { perMinute } from './rates';

interface Props {
  tenant: string;
  span: Span;
  meter: string | undefined;
  onBrush: (from: number, until: number) => void;
}

export function Traffic({ tenant, span, meter, onBrush }: Props) {
  const series = useQuery(seriesQuery(tenant, span, { meter }));
  return (
    <Card title="Traffic">
      <Query query={series} loading={<LoadingLines lines={7} />}>
        {(data) => (
          <div className={series.isPlaceholderData ? styles.old : undefined}>
            <Lines data={data} onBrush={onBrush} />
          </div>
        )}
      </Query>
    </Card>
  );
}

function Lines({ data, onBrush }: { data: Series; onBrush: Props['onBrush'] }) {
  const rates = useMemo(() => perMinute(data, serverNow()), [data]);
  const lines = useMemo(
    () => [
      { label: 'allowed', tone: 'allowed' as const, values: rates.allowed, fill: true },
      { label: 'denied', tone: 'denied' as const, values: rates.denied },
    ],
    [rates],
  );
  return (
    <Chart
      label={`${shortNumber(data.total.allowed)} checks allowed and ${shortNumber(data.total.denied)} denied`}
      x={rates.x}
      series={lines}
      height={208}
      yMin={4}
      unfinished={rates.unfinished}
      format={perMinuteText}
      onBrush={(from, until) => onBrush(...wholeSteps(from, until, data.step_seconds))}
    />
  );
}
