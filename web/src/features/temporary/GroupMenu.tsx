import { ActionIcon, Button, Menu } from '@mantine/core';
import { lazy, Suspense, useState } from 'react';
import { IconBan, IconBolt, IconCheck, IconChevronDown, IconDots } from '~/components/icons';
import type { Group } from '~/domain/group';
import { type Action, groupName, verbs } from './draft';

// The overview has menus of groups, and most visits open none.
const TemporaryRule = lazy(() => import('./TemporaryRule'));

interface Props {
  tenant: string;
  group: Group;
  /** How many of its checks were denied in the range that is shown; left out where no range is. */
  denied?: number;
  /** The button that opens the menu; left out, it is an icon. */
  label?: string;
}

const icons = { block: IconBan, limit: IconBolt, bypass: IconCheck };

/** What can be done about a group for a time. */
export function GroupMenu({ tenant, group, denied, label }: Props) {
  const [action, setAction] = useState<Action | null>(null);
  return (
    <>
      <Menu position="bottom-end">
        <Menu.Target>
          {label ? (
            <Button variant="default" rightSection={<IconChevronDown size={14} aria-hidden />}>
              {label}
            </Button>
          ) : (
            <ActionIcon aria-label={`Actions for ${groupName(group)}`}>
              <IconDots size={16} />
            </ActionIcon>
          )}
        </Menu.Target>
        <Menu.Dropdown>
          {(['block', 'limit', 'bypass'] as const).map((one) => {
            const Icon = icons[one];
            return (
              <Menu.Item key={one} leftSection={<Icon size={14} />} onClick={() => setAction(one)}>
                {verbs[one]} …
              </Menu.Item>
            );
          })}
        </Menu.Dropdown>
      </Menu>
      {action && (
        <Suspense fallback={null}>
          <TemporaryRule
            tenant={tenant}
            group={group}
            action={action}
            denied={denied}
            onClose={() => setAction(null)}
          />
        </Suspense>
      )}
    </>
  );
}
