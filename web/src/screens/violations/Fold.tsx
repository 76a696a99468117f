import { Button } from '@mantine/core';
import { useState } from 'react';
import styles from './Fold.module.css';

export function Fold({ set }: { set: number }) {
  const [open, setOpen] = useState(false);
  return (
    <Button variant="default" className={styles.fold} aria-expanded={open} onClick={() => setOpen((before) => !before)}>
      {set > 0 ? `Filters (${set})` : 'Filters'}
    </Button>
  );
}
