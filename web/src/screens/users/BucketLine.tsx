import type { Bucket } from '~/api/types';
import { IconBolt, IconPlus, IconRefresh } from '~/components/icons';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { RuleLink } from '~/components/RuleLink';
import { exactNumber } from '~/domain/format';
import { meterUnit } from '~/domain/meter';
import { splitsByUser } from '~/domain/pattern';
import { ruleLabel } from '~/domain/rule';
import styles from './Users.module.css';

export type BucketAct = 'reset' | 'credit';

export interface RowProps {
  tenant: string;
  bucket: Bucket;
  edit: boolean;
  onOverride: (rule: string) => void;
  onAct: (act: BucketAct) => void;
}

interface Props extends RowProps {
  label: string;
  value: number;
  /** The value where it is counted in requests or tokens. */
  plain: string;
  noun: string;
  isEmpty?: boolean;
  isUsedUp?: boolean;
  /** After the value, and at the end of its line. */
  after?: React.ReactNode;
  end: React.ReactNode;
  below?: React.ReactNode;
}

export function BucketLine({ tenant, bucket, edit, onOverride, onAct, ...props }: Props) {
  const { label, value, plain, noun, isEmpty, isUsedUp, after, end, below } = props;
  const { burst_capacity: most, mode, meter } = bucket;
  const unit = meterUnit(meter);
  return (
    <li className={styles.bucket}>
      <div className={styles.bucketName} title={bucket.bucket_key}>
        <div>
          <RuleLink tenant={tenant} id={bucket.rule_id} rule={bucket} />
          {mode === 'shadow' && <Outcome tone="shadow">Shadow</Outcome>}
          {bucket.overridden && <Outcome tone="neutral">Override</Outcome>}
        </div>
        <span className="soft">{bucket.limit_text}</span>
      </div>
      <div className={styles.level}>
        {/* biome-ignore lint/a11y/useSemanticElements: browsers draw a meter element in colours of their own */}
        <div
          className={styles.meter}
          role="meter"
          aria-label={label}
          aria-valuemin={0}
          aria-valuemax={most}
          aria-valuenow={Math.floor(value)}
          data-mode={mode}
          data-empty={isEmpty || undefined}
          data-used-up={isUsedUp || undefined}
        >
          <div style={{ width: `${(value / most) * 100}%` }} />
        </div>
        <div className={styles.reading}>
          <span>
            <strong className="numeric">{unit ? <Num value={value} /> : plain}</strong>{' '}
            <span className="soft">
              of {unit ? <Num value={most} unit={unit} /> : exactNumber(most)} {noun}
            </span>
            {after}
          </span>
          {end}
        </div>
        {below}
      </div>
      {edit && (
        <MoreMenu label={`Actions for the bucket of ${ruleLabel(bucket)}`}>
          <Act icon={IconRefresh} onClick={() => onAct('reset')}>
            Refill
          </Act>
          <Act icon={IconPlus} onClick={() => onAct('credit')}>
            Adjust tokens
          </Act>
          {splitsByUser(bucket.key_pattern) && (
            <Act icon={IconBolt} onClick={() => onOverride(bucket.rule_id)}>
              Override limit
            </Act>
          )}
        </MoreMenu>
      )}
    </li>
  );
}
