import { ActionIcon, Menu } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { isStatus } from '~/api/problem';
import type { Bucket } from '~/api/types';
import { IconBolt, IconDots, IconPlus, IconRefresh } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { EmptyState, ErrorState, LoadingLines } from '~/components/states';
import { duration, exactNumber } from '~/domain/format';
import { splitsByUser } from '~/domain/pattern';
import { hasRate } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import { Credit, Reset } from './BucketActs';
import { useLevel } from './level';
import { bucketsQuery } from './queries';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  user: string;
  edit: boolean;
  onOverride: (rule: number) => void;
}

/** The user’s buckets. Their levels refill on screen. */
export function Buckets({ tenant, user, edit, onOverride }: Props) {
  const buckets = useQuery(bucketsQuery(tenant, user));
  const [act, setAct] = useState<{ verb: 'reset' | 'credit'; bucket: Bucket } | null>(null);
  const done = () => setAct(null);
  return (
    <Card title="Buckets" lead="Current levels. Viewing takes no tokens." flush>
      {buckets.data ? (
        buckets.data.items.length === 0 ? (
          <EmptyState title="No buckets">
            A rule such as <code>user:{'{user_id}'}</code> gives each user a bucket. It appears here.
          </EmptyState>
        ) : (
          <>
            <ul className={styles.buckets}>
              {buckets.data.items.map((bucket) => (
                <BucketRow
                  key={bucket.bucket_key}
                  tenant={tenant}
                  bucket={bucket}
                  readAt={buckets.data.readAt}
                  edit={edit}
                  onOverride={onOverride}
                  onAct={(verb) => setAct({ verb, bucket })}
                />
              ))}
            </ul>
            {buckets.data.hasMore && (
              <p className={styles.none}>
                Not all buckets are shown: only those of the first 500 rules and of recent denials.
              </p>
            )}
          </>
        )
      ) : isStatus(buckets.error, 409) ? (
        <EmptyState title="Buckets are not visible here">
          Redis is not configured, so each process keeps its own buckets in memory.
        </EmptyState>
      ) : buckets.isError ? (
        <ErrorState error={buckets.error} onRetry={() => buckets.refetch()} />
      ) : (
        <LoadingLines lines={4} />
      )}
      {act?.verb === 'reset' && <Reset tenant={tenant} user={user} bucket={act.bucket} onClose={done} />}
      {act?.verb === 'credit' && <Credit tenant={tenant} user={user} bucket={act.bucket} onClose={done} />}
    </Card>
  );
}

interface RowProps {
  tenant: string;
  bucket: Bucket;
  readAt: number;
  edit: boolean;
  onOverride: (rule: number) => void;
  onAct: (verb: 'reset' | 'credit') => void;
}

function BucketRow({ tenant, bucket, readAt, edit, onOverride, onAct }: RowProps) {
  const level = useLevel(bucket, readAt);
  const { burst_capacity, key_pattern, rule_id, mode, overridden, bucket_key } = bucket;
  const nouns = nounsOf(bucket);
  const label = ruleLabel(bucket);
  return (
    <li className={styles.bucket}>
      <div className={styles.bucketName} title={bucket_key}>
        <div>
          <RuleLink tenant={tenant} id={rule_id} rule={bucket} />
          {mode === 'shadow' && <Outcome tone="shadow">Shadow</Outcome>}
          {overridden && <Outcome tone="neutral">Override</Outcome>}
        </div>
        <span className="soft">{bucket.limit_text}</span>
      </div>
      <div className={styles.level}>
        {/* biome-ignore lint/a11y/useSemanticElements: browsers draw a meter element in colours of their own */}
        <div
          className={styles.meter}
          role="meter"
          aria-label={`${nouns.title} of ${label}`}
          aria-valuemin={0}
          aria-valuemax={burst_capacity}
          aria-valuenow={Math.floor(level)}
          data-empty={level < 1 || undefined}
          data-mode={mode}
        >
          <div style={{ width: `${(level / burst_capacity) * 100}%` }} />
        </div>
        <div className={styles.reading}>
          <span>
            <strong className="numeric">{tokens(level)}</strong>{' '}
            <span className="soft">
              of {exactNumber(burst_capacity)} {nouns.left}
            </span>
          </span>
          <span className="soft numeric">{rest(bucket, level)}</span>
        </div>
      </div>
      {edit && (
        <Menu position="bottom-end">
          <Menu.Target>
            <ActionIcon aria-label={`Actions for the bucket of ${label}`}>
              <IconDots size={16} />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item leftSection={<IconRefresh size={14} />} onClick={() => onAct('reset')}>
              Refill
            </Menu.Item>
            <Menu.Item leftSection={<IconPlus size={14} />} onClick={() => onAct('credit')}>
              Adjust tokens
            </Menu.Item>
            {splitsByUser(key_pattern) && (
              <Menu.Item leftSection={<IconBolt size={14} />} onClick={() => onOverride(rule_id)}>
                Override limit
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
      )}
    </li>
  );
}

/** Whole tokens; with one decimal below ten. */
function tokens(level: number): string {
  return level < 10 ? level.toFixed(1) : exactNumber(Math.floor(level));
}

/** What a bucket holds, in words. */
function nounsOf({ algorithm }: Bucket) {
  switch (algorithm) {
    case 'leaky_bucket':
      return { title: 'Free places in the queue', left: 'places free' };
    case 'concurrency':
      return { title: 'Free places', left: 'places free' };
    case 'token_bucket':
      return { title: 'Tokens in the bucket', left: 'tokens' };
    default:
      return { title: 'What is left of the window', left: 'left' };
  }
}

function rest(bucket: Bucket, level: number): string {
  const { burst_capacity, rate_per_second, mode, algorithm, reset_after_ms } = bucket;
  if (algorithm === 'concurrency') return level < 1 ? 'all places are taken' : '';
  if (!hasRate(algorithm)) {
    return level >= burst_capacity ? 'unused' : `all of it in ${duration(reset_after_ms)} at most`;
  }
  const denies = mode === 'shadow' ? 'would deny' : 'denies';
  if (level < 1) return `${denies} for ${duration(((1 - level) / rate_per_second) * 1000)} more`;
  const missing = burst_capacity - level;
  return missing < 0.005 ? 'full' : `full in ${duration((missing / rate_per_second) * 1000)}`;
}
