import { Button, Group, Modal } from '@mantine/core';
import { useRouter } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import styles from './Dialog.module.css';
import { Leaving } from './Leaving';
import { useEscape } from './useEscape';
import { useFocusBack } from './useFocusBack';

interface Props {
  opened?: boolean;
  onClose: () => void;
  title: React.ReactNode;
  size?: number;
  pending?: boolean;
  /** Only its own buttons close it, because its content cannot be shown again. */
  keepOpen?: boolean;
  children: React.ReactNode;
}

/**
 * A modal that does not lose input: Escape asks first if something was typed, as leaving the page does. A save that
 * opens another page passes ignoreBlocker.
 */
export function Dialog({ opened = true, onClose, title, size, pending, keepOpen, children }: Props) {
  const [changed, setChanged] = useState(false);
  const [asking, setAsking] = useState(false);
  useEffect(() => {
    if (!opened) return;
    setChanged(false);
    setAsking(false);
  }, [opened]);
  // The dialog that asks for a proof of identity stands outside of the router.
  const canLeave = !!useRouter({ warn: false });
  const locked = !!pending || !!keepOpen;
  // React passes on the events of a dialog inside of this one.
  function change({ currentTarget, target }: React.FormEvent) {
    if ((target as Element).closest('.mantine-Modal-root') === currentTarget) setChanged(true);
  }

  useFocusBack(opened);
  useEscape(opened, () => {
    if (locked) return;
    if (changed) setAsking((before) => !before);
    else onClose();
  });

  return (
    <Modal
      opened={opened}
      onClose={() => !locked && onClose()}
      title={title}
      size={size}
      closeOnClickOutside={!changed && !locked}
      closeOnEscape={false}
      withCloseButton={!keepOpen}
      closeButtonProps={{ 'aria-label': 'Close', disabled: pending }}
      onInput={change}
      onChange={change}
    >
      {children}
      {asking && (
        <div role="alert" className={styles.discard}>
          <span>Discard your edits?</span>
          <Group gap={8}>
            <Button size="xs" variant="default" onClick={onClose}>
              Discard edits
            </Button>
            <Button size="xs" onClick={() => setAsking(false)} autoFocus>
              Keep editing
            </Button>
          </Group>
        </div>
      )}
      {opened && canLeave && <Leaving when={changed && !locked} what="What you typed" inDialog />}
    </Modal>
  );
}
