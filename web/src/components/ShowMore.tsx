import { Button } from '@mantine/core';
import { plural } from '~/domain/format';
import styles from './ShowMore.module.css';

interface Props {
  list: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };
  rows: unknown[];
  noun: string;
}

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
