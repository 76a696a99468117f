import type { Bucket } from '~/api/types';
import { IconBolt, IconPlus, IconRefresh } from '~/components/icons';
import { Act, MoreMenu } from '~/components/MoreMenu';
import { splitsByUser } from '~/domain/pattern';
import { ruleLabel } from '~/domain/rule';

export type BucketAct = 'reset' | 'credit';

interface Props {
  bucket: Bucket;
  onAct: (act: BucketAct) => void;
  onOverride: (rule: string) => void;
}

export function BucketMenu({ bucket, onAct, onOverride }: Props) {
  return (
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
  );
}
