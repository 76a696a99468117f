import { Button } from '@mantine/core';
import { sentence } from '~/api/problem';
import { Announce } from '~/components/Announce';
import { exactTime, plural } from '~/domain/format';
import type { useTail } from './useTail';
import styles from './Violations.module.css';

export function LiveLine({ tail, waiting }: { tail: ReturnType<typeof useTail>; waiting: number }) {
  const { state, gap, dropped, error } = tail;
  const words = {
    off: 'Paused.',
    connecting: error ? `${sentence(error)} It connects again by itself.` : 'Connecting …',
    live: waiting > 0 ? 'Live.' : 'Live. New violations appear here.',
    stopped: sentence(error),
  }[state];
  return (
    <div className={styles.live} data-state={state}>
      <span className={styles.dot} aria-hidden />
      <span>
        {words}
        {gap && ` Too many arrived: some before ${exactTime(Date.parse(gap))} are not shown.`}
        {dropped && ' Only the latest 2,000 are kept.'}
      </span>
      {(dropped || gap) && (
        <Button size="xs" variant="default" onClick={tail.forget}>
          Reload the list
        </Button>
      )}
      {waiting > 0 && (
        <Button size="xs" variant="light" onClick={tail.show}>
          {waiting.toLocaleString('en')} new
        </Button>
      )}
      <Announce>{waiting > 0 ? `${words} ${plural(waiting, 'new violation')}.` : words}</Announce>
    </div>
  );
}
