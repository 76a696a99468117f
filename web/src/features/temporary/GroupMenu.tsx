import { ActionIcon, Button, Menu } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { IconArrowUp, IconBan, IconBolt, IconCheck, IconChevronDown, IconDots } from '~/components/icons';
import { later } from '~/components/later';
import { Act } from '~/components/MoreMenu';
import type { Group } from '~/domain/group';
import { useBlock } from './Blocked';
import { type Action, groupName, verbs } from './draft';

const TemporaryRule = later(() => import('./TemporaryRule'));

interface Props {
  tenant: string;
  group: Group;
  /** Denied checks in the shown range; left out where no range is. */
  denied?: number;
  label?: string;
  /** Raises a user's limit. Without it, the menu leads to the user's page; null offers neither. */
  onRaise?: (() => void) | null;
}

const icons = { block: IconBan, limit: IconBolt, bypass: IconCheck };

function BlockVerb({ tenant, group }: { tenant: string; group: Group }) {
  return <>{useBlock(tenant, group)?.own ? 'Change the block' : verbs.block}</>;
}

function Raise({ tenant, user, onRaise }: { tenant: string; user: string; onRaise?: () => void }) {
  const icon = <IconArrowUp size={14} />;
  if (onRaise) {
    return (
      <Menu.Item leftSection={icon} onClick={onRaise}>
        Raise a limit …
      </Menu.Item>
    );
  }
  return (
    <Menu.Item
      leftSection={icon}
      renderRoot={(props) => <Link to="/t/$tenant/users/$user" params={{ tenant, user }} {...props} />}
    >
      Open user to raise a limit
    </Menu.Item>
  );
}

export function GroupMenu({ tenant, group, denied, label, onRaise }: Props) {
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
              <Act icon={Icon} key={one} onClick={() => setAction(one)}>
                {one === 'block' ? <BlockVerb tenant={tenant} group={group} /> : verbs[one]} …
              </Act>
            );
          })}
          {group.by === 'user' && onRaise !== null && <Raise tenant={tenant} user={group.value} onRaise={onRaise} />}
        </Menu.Dropdown>
      </Menu>
      {action && (
        <TemporaryRule tenant={tenant} group={group} action={action} denied={denied} onClose={() => setAction(null)} />
      )}
    </>
  );
}
