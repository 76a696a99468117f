import { Button } from '@mantine/core';
import { Card } from '~/components/Page';
import styles from '../Settings.module.css';

interface Props {
  title: string;
  state: React.ReactNode;
  note: string;
  verb: string;
  /** Asks whether to switch; undefined for those who may not. */
  onSwitch: (() => void) | undefined;
  /** The dialog that asks. */
  children: React.ReactNode;
}

/** The card of something that a tenant has switched on or off. */
export function SwitchCard({ title, state, note, verb, onSwitch, children }: Props) {
  return (
    <Card title={title}>
      <div className={styles.apart}>
        <div>
          {state}
          <p className={styles.dim} style={{ marginTop: 4 }}>
            {note}
          </p>
        </div>
        {onSwitch && (
          <Button variant="default" onClick={onSwitch}>
            {verb} …
          </Button>
        )}
      </div>
      {children}
    </Card>
  );
}
