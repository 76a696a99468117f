import type { Bucket } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { RuleLink } from '~/components/RuleLink';
import styles from './Users.module.css';

export function BucketName({ tenant, bucket }: { tenant: string; bucket: Bucket }) {
  return (
    <div className={styles.bucketName} title={bucket.bucket_key}>
      <div>
        <RuleLink tenant={tenant} id={bucket.rule_id} rule={bucket} />
        {bucket.mode === 'shadow' && <Outcome tone="shadow">Shadow</Outcome>}
        {bucket.overridden && <Outcome tone="neutral">Override</Outcome>}
      </div>
      <span className="soft">{bucket.limit_text}</span>
    </div>
  );
}
