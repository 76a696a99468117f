import { NativeSelect } from '@mantine/core';
import { usePrefetchQuery, useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useDeferredValue, useEffect, useRef } from 'react';
import { summaryQuery } from '~/api/traffic';
import { Page } from '~/components/Page';
import { ErrorState, LoadingLines } from '~/components/states';
import { TimeRange, useTimeRange } from '~/components/TimeRange';
import { done } from '~/components/toast';
import { meterUnit, requests } from '~/domain/meter';
import { namedSpan } from '~/domain/range';
import { EndingSoon } from '~/features/overrides/EndingSoon';
import { endingSoonQuery } from '~/features/overrides/queries';
import { headings } from '~/headings';
import { overviewSearch } from '~/search';
import { useTenant } from '~/session';
import { Health } from './Health';
import { LimitedTable } from './LimitedTable';
import { checksOf, Tiles } from './Tiles';
import { Traffic } from './Traffic';

// Parts that most tenants lack, or that are looked at last, are no part of the first load.
const FirstSteps = lazy(() => import('./FirstSteps'));
const ShadowRules = lazy(() => import('./ShadowRules'));

const month = namedSpan('30d');

function useMeter() {
  const { meter } = overviewSearch(useSearch({ strict: false }));
  const navigate = useNavigate();
  const set = (value: string) =>
    navigate({ to: '.', search: (old: object) => ({ ...old, meter: value || undefined }) });
  return [meter, set] as const;
}

export default function Overview() {
  const tenant = useTenant();
  const range = useTimeRange('1h');
  usePrefetchQuery(endingSoonQuery(tenant));
  const [meter, setMeter] = useMeter();
  const summary = useQuery(summaryQuery(tenant, range, meter));
  const shown = useDeferredValue(summary.data);
  // No checks in this range can mean a quiet night or a new tenant.
  const silent = !summary.isPlaceholderData && summary.data !== undefined && checksOf(summary.data.total) === 0;
  const ever = useQuery({ ...summaryQuery(tenant, month), enabled: silent, placeholderData: undefined });
  const isNew = silent && ever.data !== undefined && checksOf(ever.data.total) === 0;
  const waited = useRef(''); // the tenant whose first check was waited for
  const arrived = summary.data !== undefined && !summary.isPlaceholderData && !silent;
  useEffect(() => {
    if (isNew) {
      waited.current = tenant;
    } else if (arrived) {
      if (waited.current === tenant) done('The first check has arrived.');
      waited.current = '';
    }
  }, [arrived, isNew, tenant]);

  return (
    <Page
      {...headings.overview}
      actions={
        !isNew && (
          <>
            {(meter || (summary.data && summary.data.meters.length > 0)) && (
              <NativeSelect
                aria-label="Meter"
                value={meter ?? ''}
                onChange={({ currentTarget }) => setMeter(currentTarget.value)}
                data={[
                  { value: '', label: 'All meters' },
                  ...[...new Set([requests, ...(summary.data?.meters ?? []), ...(meter ? [meter] : [])])].map(
                    (value) => ({
                      value,
                      label: meterUnit(value) || value,
                    }),
                  ),
                ]}
              />
            )}
            <TimeRange fallback="1h" />
          </>
        )
      }
    >
      {summary.isError && !summary.data ? (
        <ErrorState error={summary.error} onRetry={() => summary.refetch()} />
      ) : !summary.data || !shown || (silent && ever.isPending) ? (
        <LoadingLines lines={10} />
      ) : isNew ? (
        <>
          <Suspense fallback={<LoadingLines />}>
            <FirstSteps tenant={tenant} />
          </Suspense>
          <Health />
        </>
      ) : (
        <>
          <Tiles tenant={tenant} span={range} meter={meter} summary={shown} old={summary.isPlaceholderData} />
          <LimitedTable tenant={tenant} span={range} meter={meter} />
          <Traffic tenant={tenant} span={range} meter={meter} onBrush={range.brush} />
          <EndingSoon tenant={tenant} />
          <Suspense fallback={null}>
            {shown.shadow_rules.length > 0 && <ShadowRules tenant={tenant} rules={shown.shadow_rules} />}
          </Suspense>
          <Health />
        </>
      )}
    </Page>
  );
}
