import { Button, Group } from '@mantine/core';
import { useState } from 'react';
import { Copy } from './Copy';
import { Dialog } from './Dialog';
import { IconAlert } from './icons';
import styles from './SecretDialog.module.css';

interface Props {
  title: string;
  what: string;
  secret: string;
  children?: React.ReactNode;
  onClose: () => void;
}

export function SecretDialog({ title, what, secret, children, onClose }: Props) {
  const [copied, setCopied] = useState(false);
  async function copy() {
    await navigator.clipboard.writeText(secret);
    setCopied(true);
  }
  return (
    <Dialog onClose={onClose} size={600} title={title} keepOpen>
      <p className={styles.warning}>
        <IconAlert size={15} aria-hidden />
        Copy it now. It cannot be shown again.
      </p>
      <div className={styles.secret}>
        <code>{secret}</code>
        <Copy value={secret} label={`Copy ${what}`} />
      </div>
      {children && <div className={styles.use}>{children}</div>}
      <Group justify="flex-end" gap={8} mt="lg">
        <Button variant="default" onClick={onClose}>
          Done
        </Button>
        <Button onClick={copy} data-autofocus>
          {copied ? 'Copied' : `Copy ${what}`}
        </Button>
      </Group>
    </Dialog>
  );
}
