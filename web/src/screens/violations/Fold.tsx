import { Button } from '@mantine/core';
import { useState } from 'react';
import styles from './Fold.module.css';

/** On phones: shows and hides the filters after the one beside it. `set` says how many of them are set. */
export function Fold({ set }: { set: number }) {
  const [open, setOpen] = useState(false);
  return (
    <Button variant="default" className={styles.fold} aria-expanded={open} onClick={() => setOpen((before) => !before)}>
      {set > 0 ? `Filters (${set})` : 'Filters'}
    </Button>
  );
}
