import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { isStatus } from '~/api/problem';
import { plansQuery } from '~/api/queries';
import type { Bucket, User } from '~/api/types';
import { planOfChecks } from '~/api/user';
import { ChoiceField } from '~/components/ChoiceField';
import { Card } from '~/components/Page';
import { EmptyState, ErrorState, LoadingLines } from '~/components/states';
import { duration, exactNumber } from '~/domain/format';
import { lentHint, lentText, roomOf } from '~/domain/lent';
import { heldUnit, least, meterUnit } from '~/domain/meter';
import { upper } from '~/domain/pattern';
import { hasRate } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import { Credit, Reset } from './BucketActs';
import { type BucketAct, BucketLine, type RowProps } from './BucketLine';
import { useLevel } from './level';
import { QuotaRow } from './QuotaRow';
import { bucketsQuery } from './queries';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  user: User;
  edit: boolean;
  onOverride: (rule: string) => void;
}

export function Buckets({ tenant, user, edit, onOverride }: Props) {
  const [chosen, setChosen] = useState<string>();
  const own = planOfChecks(user);
  const buckets = useQuery(bucketsQuery(tenant, user.user_id, chosen ?? user.sent_plan ?? undefined));
  const { data: plans = [] } = useQuery(plansQuery(tenant));
  const choice = plans.length > 1 && (
    <ChoiceField
      aria-label="Plan of the buckets"
      value={chosen ?? own ?? ''}
      data={[...(own === null ? [{ value: '', label: 'no plan' }] : []), ...plans.map(({ name }) => name)]}
      onChange={(plan) => setChosen(plan || undefined)}
    />
  );
  const [acting, setActing] = useState<{ act: BucketAct; bucket: Bucket } | null>(null);
  const done = () => setActing(null);
  if (!buckets.data) {
    return (
      <Card title="Quotas and buckets" flush actions={choice}>
        {isStatus(buckets.error, 409) ? (
          <EmptyState title="Buckets are not visible here">
            Without Redis, each process keeps its own buckets.
          </EmptyState>
        ) : buckets.isError ? (
          <ErrorState error={buckets.error} onRetry={() => buckets.refetch()} />
        ) : (
          <LoadingLines lines={4} />
        )}
      </Card>
    );
  }
  const { items, hasMore, readAt } = buckets.data;
  const quotas = items.filter(({ algorithm }) => algorithm === 'fixed_window');
  const others = items.filter(({ algorithm }) => algorithm !== 'fixed_window');
  const rowOf = (bucket: Bucket) => ({
    tenant,
    bucket,
    edit,
    onOverride,
    onAct: (act: BucketAct) => setActing({ act, bucket }),
  });
  return (
    <>
      {quotas.length > 0 && (
        <Card title="Quotas" flush actions={choice}>
          <ul className={styles.buckets} aria-label="Quotas">
            {quotas.map((bucket) => (
              <QuotaRow key={bucket.bucket_key} {...rowOf(bucket)} />
            ))}
          </ul>
        </Card>
      )}
      <Card title="Buckets" flush actions={quotas.length === 0 && choice}>
        {items.length === 0 ? (
          <p className={styles.none}>No buckets.</p>
        ) : others.length === 0 ? (
          <p className={styles.none}>No buckets but those of quotas.</p>
        ) : (
          <ul className={styles.buckets} aria-label="Buckets">
            {others.map((bucket) => (
              <BucketRow key={bucket.bucket_key} readAt={readAt} {...rowOf(bucket)} />
            ))}
          </ul>
        )}
        {hasMore && <p className={styles.none}>Only buckets of the first 500 rules and of recent denials are shown.</p>}
      </Card>
      {acting?.act === 'reset' && <Reset tenant={tenant} user={user.user_id} bucket={acting.bucket} onClose={done} />}
      {acting?.act === 'credit' && <Credit tenant={tenant} user={user.user_id} bucket={acting.bucket} onClose={done} />}
    </>
  );
}

function BucketRow({ readAt, ...props }: RowProps & { readAt: number }) {
  const { bucket } = props;
  const level = useLevel(bucket, readAt);
  const { title, left } = nounsOf(bucket);
  return (
    <BucketLine
      {...props}
      label={`${title} of ${ruleLabel(bucket)}`}
      value={level}
      plain={tokens(level)}
      noun={left}
      isEmpty={level < least(bucket.meter)}
      end={<span className="soft numeric">{rest(bucket, level)}</span>}
      below={
        bucket.lent && (
          <span className="soft" title={lentHint}>
            {lentText(bucket)}
          </span>
        )
      }
    />
  );
}

/** Never more than there is: 0.99 tokens allow nothing. */
function tokens(level: number): string {
  return level < 10 ? (Math.floor(level * 10) / 10).toFixed(1) : exactNumber(Math.floor(level));
}

function nounsOf({ algorithm, meter }: Bucket) {
  switch (algorithm) {
    case 'leaky_bucket':
      return { title: 'Free places in the queue', left: 'places free' };
    case 'concurrency':
      return { title: 'Free places', left: 'places free' };
    case 'token_bucket':
      return { title: `${upper(heldUnit(meter))} in the bucket`, left: meterUnit(meter) ? 'left' : 'tokens' };
    default:
      return { title: 'What is left of the window', left: 'left' };
  }
}

function rest(bucket: Bucket, level: number): string {
  const { burst_capacity, rate_per_second, mode, lent, algorithm, reset_after_ms, meter } = bucket;
  if (algorithm === 'concurrency') return level < 1 ? 'all places are taken' : '';
  if (!hasRate(algorithm)) {
    return level >= burst_capacity ? 'unused' : `all of it in ${duration(reset_after_ms)} at most`;
  }
  const denies = mode === 'shadow' ? 'would deny' : 'denies';
  const isEmpty = level < least(meter);
  if (isEmpty && lent) return ''; // nobody knows what processes give back
  if (isEmpty) return `${denies} for ${duration(((least(meter) - level) / rate_per_second) * 1000)} more`;
  const missing = roomOf(bucket) - level;
  return missing < 0.005 ? 'full' : `full in ${duration((missing / rate_per_second) * 1000)}`;
}
