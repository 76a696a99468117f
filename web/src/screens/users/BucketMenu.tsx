import { ActionIcon, Menu } from '@mantine/core';
import type { Bucket } from '~/api/types';
import { IconBolt, IconDots, IconPlus, IconRefresh } from '~/components/icons';
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
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon aria-label={`Actions for the bucket of ${ruleLabel(bucket)}`}>
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
        {splitsByUser(bucket.key_pattern) && (
          <Menu.Item leftSection={<IconBolt size={14} />} onClick={() => onOverride(bucket.rule_id)}>
            Override limit
          </Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
