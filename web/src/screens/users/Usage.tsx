import { Button, NativeSelect } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { serverNow } from '~/api/clock';
import { exportAddress } from '~/api/exports';
import type { UserMonth } from '~/api/types';
import { countColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { IconDownload } from '~/components/icons';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { clockTime } from '~/domain/format';
import { meterUnit } from '~/domain/meter';
import { upper } from '~/domain/pattern';
import styles from './Users.module.css';
import { goesOn, lastMonths, monthName, usageQuery } from './usage';

export function Usage({ tenant, user }: { tenant: string; user: string }) {
  const usage = useQuery(usageQuery(tenant, user));
  const file = (months: { from?: string; to?: string } = {}) =>
    exportAddress(tenant, 'usage/export', { by: 'user', user_id: user, ...months });
  const meters = [...new Set(usage.data?.months.flatMap(({ costs }) => Object.keys(costs)))].sort();
  const columns: Column<UserMonth>[] = [
    {
      key: 'month',
      header: 'Month',
      width: '26%',
      render: ({ month }) => (
        <>
          {monthName(month)}
          {usage.data && goesOn(month, usage.data.asOf) && <span className="soft">, so far</span>}
        </>
      ),
    },
    countColumn('allowed', 'Allowed', undefined, ({ allowed }) => allowed),
    countColumn('denied', 'Denied', undefined, ({ denied }) => denied),
    countColumn('cost', 'Cost', undefined, ({ cost }) => cost),
    ...meters.map((meter) =>
      countColumn(`of ${meter}`, upper(meterUnit(meter)), undefined, ({ costs }: UserMonth) => costs[meter] ?? 0),
    ),
    {
      key: 'file',
      header: 'File',
      quiet: true,
      width: 64,
      render: ({ month }) => (
        <a download href={file({ from: month, to: month })} aria-label={`CSV of ${monthName(month)}`}>
          CSV
        </a>
      ),
    },
  ];
  if (usage.data?.months.length === 0) return null;
  return (
    <Card
      title="Usage per month"
      flush
      actions={
        <Button component="a" variant="default" leftSection={<IconDownload size={14} />} download href={file()}>
          All months (CSV)
        </Button>
      }
    >
      <Query query={usage} loading={<LoadingLines lines={2} />}>
        {({ months, asOf }) => (
          <>
            <DataTable label="Usage per month" columns={columns} rows={months} rowKey={({ month }) => month} />
            <p className={styles.asOf}>Months in UTC, as of {clockTime(Date.parse(asOf))}.</p>
          </>
        )}
      </Query>
    </Card>
  );
}

interface FilesProps {
  tenant: string;
  onExport: (address: string) => void;
}

export function UsageFiles({ tenant, onExport }: FilesProps) {
  const [months] = useState(() => lastMonths(serverNow()));
  const [month, setMonth] = useState(months[0] ?? '');
  const range = month === '' ? {} : { from: month, to: month };
  return (
    <Card title="Usage per month" lead="In UTC; costs are of allowed checks, records and settlements">
      <div className={styles.usage}>
        <NativeSelect
          label="Month"
          value={month}
          data={[
            ...months.map((value, index) => ({
              value,
              label: `${monthName(value)}${index === 0 ? ', so far' : ''}`,
            })),
            { value: '', label: 'The last 13 months' },
          ]}
          onChange={(event) => setMonth(event.currentTarget.value)}
        />
        {(['user', 'rule'] as const).map((by) => (
          <Button
            key={by}
            variant="default"
            leftSection={<IconDownload size={14} />}
            onClick={() => onExport(exportAddress(tenant, 'usage/export', { by, ...range }))}
          >
            By {by} (CSV)
          </Button>
        ))}
      </div>
    </Card>
  );
}
