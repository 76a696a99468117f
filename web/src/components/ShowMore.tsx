import { Button } from '@mantine/core';
import { plural } from '~/domain/format';
import styles from './ShowMore.module.css';

interface Props {
  list: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };
  rows: unknown[];
  /** What a row is: "user". */
  noun: string;
}

/** The foot of a list that is read page by page: how many rows there are so far, and the button for more. */
export function ShowMore({ list, rows, noun }: Props) {
  return (
    <footer className={styles.footer}>
      <span role="status">
        {plural(rows.length, noun)}
        {list.hasNextPage && ' so far'}
      </span>
      {list.hasNextPage && (
        <Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
          Show more
        </Button>
      )}
    </footer>
  );
}
