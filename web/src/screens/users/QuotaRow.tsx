import type { Bucket } from '~/api/types';
import { useNow } from '~/components/Time';
import { exactNumber, relative, zonedTime } from '~/domain/format';
import { least } from '~/domain/meter';
import { ruleLabel } from '~/domain/rule';
import { BucketLine, type RowProps } from './BucketLine';
import styles from './Users.module.css';

export function QuotaRow(props: RowProps) {
  const { burst_capacity, tokens, mode, meter, window } = props.bucket;
  const used = Math.max(0, burst_capacity - tokens);
  const isUsedUp = tokens < least(meter);
  const isShadow = mode === 'shadow';
  return (
    <BucketLine
      {...props}
      label={`Use of ${ruleLabel(props.bucket)}`}
      value={used}
      plain={exactNumber(Math.round(used * 10) / 10)}
      noun="used"
      isUsedUp={isUsedUp}
      after={
        isUsedUp && <span className={isShadow ? 'soft' : styles.usedUp}>{isShadow ? ', would deny' : ', used up'}</span>
      }
      end={window && <Ends window={window} />}
    />
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
