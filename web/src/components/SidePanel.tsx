import { ActionIcon, Drawer, Tooltip } from '@mantine/core';
import { useHotkeys, useMediaQuery } from '@mantine/hooks';
import { useId } from 'react';
import { IconArrowDown, IconArrowUp, IconX } from './icons';
import styles from './SidePanel.module.css';

interface Props {
  opened: boolean;
  onClose: () => void;
  title: string;
  beside?: React.ReactNode;
  onPrevious?: () => void;
  onNext?: () => void;
  children: React.ReactNode;
}

const wide = '(width >= 1024px)';

/** The list keeps the focus; a narrow screen shows the panel alone. */
export function SidePanel({ opened, onClose, title, beside, onPrevious, onNext, children }: Props) {
  const isWide = useMediaQuery(wide, undefined, { getInitialValueInEffect: false });
  const id = useId();
  // On a narrow screen the panel is a modal itself.
  const isOnTop = () => opened && document.querySelectorAll('[aria-modal="true"]').length === (isWide ? 0 : 1);
  useHotkeys([
    ['k', () => isOnTop() && onPrevious?.()],
    ['j', () => isOnTop() && onNext?.()],
    ['Escape', () => isWide && isOnTop() && onClose()],
  ]);
  const buttons = (
    <span className={styles.buttons}>
      {(onPrevious || onNext) && (
        <>
          <Step label="Previous (k)" go={onPrevious} icon={<IconArrowUp size={15} />} />
          <Step label="Next (j)" go={onNext} icon={<IconArrowDown size={15} />} />
        </>
      )}
      <ActionIcon aria-label="Close" onClick={onClose}>
        <IconX size={16} />
      </ActionIcon>
    </span>
  );
  if (isWide) {
    if (!opened) return null;
    return (
      <dialog open data-docked className={styles.docked} aria-labelledby={id}>
        <div className={styles.header}>
          <h2 id={id} className={styles.title}>
            {title}
          </h2>
          {beside}
          {buttons}
        </div>
        <div className={styles.body}>{children}</div>
      </dialog>
    );
  }
  return (
    <Drawer.Root
      opened={opened}
      onClose={onClose}
      position="right"
      size={480}
      padding={0}
      transitionProps={{ duration: 120 }}
      classNames={{ content: styles.panel, header: styles.header, title: styles.title, body: styles.body }}
    >
      <Drawer.Overlay backgroundOpacity={0.12} />
      <Drawer.Content>
        {/* A banner belongs to the page alone. */}
        <Drawer.Header role="presentation">
          <Drawer.Title>{title}</Drawer.Title>
          {beside}
          {buttons}
        </Drawer.Header>
        <Drawer.Body>{children}</Drawer.Body>
      </Drawer.Content>
    </Drawer.Root>
  );
}

function Step({ label, go, icon }: { label: string; go?: () => void; icon: React.ReactNode }) {
  return (
    <Tooltip label={label}>
      <ActionIcon aria-label={label} disabled={!go} onClick={go}>
        {icon}
      </ActionIcon>
    </Tooltip>
  );
}
