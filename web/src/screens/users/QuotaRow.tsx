import type { Bucket } from '~/api/types';
import { Num } from '~/components/Num';
import { useNow } from '~/components/Time';
import { exactNumber, relative, zonedTime } from '~/domain/format';
import { least, meterUnit } from '~/domain/meter';
import { ruleLabel } from '~/domain/rule';
import { type BucketAct, BucketMenu } from './BucketMenu';
import { BucketName } from './BucketName';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  bucket: Bucket;
  edit: boolean;
  onOverride: (rule: string) => void;
  onAct: (act: BucketAct) => void;
}

export function QuotaRow({ tenant, bucket, edit, onOverride, onAct }: Props) {
  const { burst_capacity, tokens, mode, meter } = bucket;
  const used = Math.max(0, burst_capacity - tokens);
  const isUsedUp = tokens < least(meter);
  const unit = meterUnit(meter);
  return (
    <li className={styles.bucket}>
      <BucketName tenant={tenant} bucket={bucket} />
      <div className={styles.level}>
        {/* biome-ignore lint/a11y/useSemanticElements: browsers draw a meter element in colours of their own */}
        <div
          className={styles.meter}
          role="meter"
          aria-label={`Use of ${ruleLabel(bucket)}`}
          aria-valuemin={0}
          aria-valuemax={burst_capacity}
          aria-valuenow={Math.floor(used)}
          data-mode={mode}
          data-used-up={isUsedUp || undefined}
        >
          <div style={{ width: `${(used / burst_capacity) * 100}%` }} />
        </div>
        <div className={styles.reading}>
          <span>
            <strong className="numeric">{unit ? <Num value={used} /> : exactNumber(Math.round(used * 10) / 10)}</strong>{' '}
            <span className="soft">
              of {unit ? <Num value={burst_capacity} unit={unit} /> : exactNumber(burst_capacity)} used
            </span>
            {isUsedUp && (
              <span className={mode === 'shadow' ? 'soft' : styles.usedUp}>
                {mode === 'shadow' ? ', would deny' : ', used up'}
              </span>
            )}
          </span>
          {bucket.window && <Ends window={bucket.window} />}
        </div>
      </div>
      {edit && <BucketMenu bucket={bucket} onAct={onAct} onOverride={onOverride} />}
    </li>
  );
}

function Ends({ window: { ends_at, zone } }: { window: NonNullable<Bucket['window']> }) {
  const now = useNow(1000);
  const end = Date.parse(ends_at);
  return (
    <span className="soft numeric">
      until <time dateTime={ends_at}>{zonedTime(end, zone)}</time>, {relative(end, now)}
    </span>
  );
}
