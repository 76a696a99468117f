import { ActionIcon, type ActionIconProps, Menu } from '@mantine/core';
import type { Icon } from '@tabler/icons-react';
import { IconDots } from './icons';

interface Props extends ActionIconProps {
  label: string;
  children: React.ReactNode;
}

export function MoreMenu({ label, children, ...button }: Props) {
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon aria-label={label} {...button}>
          <IconDots size={16} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>{children}</Menu.Dropdown>
    </Menu>
  );
}

interface ActProps {
  icon: Icon;
  onClick: (() => void) | undefined;
  disabled?: boolean;
  color?: string;
  children: React.ReactNode;
}

export function Act({ icon: Shape, ...item }: ActProps) {
  return <Menu.Item leftSection={<Shape size={15} />} {...item} />;
}
