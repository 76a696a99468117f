import { Button, Group } from '@mantine/core';
import { useState } from 'react';
import { Dialog } from '~/components/Dialog';
import { IconAlert } from '~/components/icons';
import styles from './Profile.module.css';

/** Shows recovery codes once, because only their digests are stored. */
export function RecoveryCodes({ codes, onClose }: { codes: string[]; onClose: () => void }) {
  const [copied, setCopied] = useState(false);
  const text = `${codes.join('\n')}\n`;
  async function copy() {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  }
  return (
    <Dialog onClose={onClose} size={480} title="Recovery codes" keepOpen>
      <p className={styles.warning}>
        <IconAlert size={15} aria-hidden />
        Keep them apart from your phone. They are shown only now.
      </p>
      <p className="soft">Each one signs you in once, in place of the app’s code.</p>
      <ul className={styles.codes} aria-label="Recovery codes">
        {codes.map((code) => (
          <li key={code}>
            <code>{code}</code>
          </li>
        ))}
      </ul>
      <Group justify="flex-end" gap={8} mt="lg">
        <Button
          variant="default"
          component="a"
          download="sluice-recovery-codes.txt"
          href={`data:text/plain;charset=utf-8,${encodeURIComponent(text)}`}
        >
          Download
        </Button>
        <Button variant="default" onClick={copy} data-autofocus>
          {copied ? 'Copied' : 'Copy'}
        </Button>
        <Button onClick={onClose}>I have kept them</Button>
      </Group>
    </Dialog>
  );
}
