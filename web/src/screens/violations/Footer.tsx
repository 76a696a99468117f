import { Button } from '@mantine/core';
import type { InfiniteData, UseInfiniteQueryResult } from '@tanstack/react-query';
import type { Violation } from '~/api/types';
import type { ViolationPage } from '~/api/violations';
import { Announce } from '~/components/Announce';
import { IconViolations } from '~/components/icons';
import { LinkButton } from '~/components/LinkButton';
import { EmptyState } from '~/components/states';
import { exactTime, plural } from '~/domain/format';
import styles from './Violations.module.css';

type List = UseInfiniteQueryResult<InfiniteData<ViolationPage>>;

export function Footer({ list, rows }: { list: List; rows: Violation[] }) {
  const checks = rows.reduce((sum, { count }) => sum + count, 0);
  const found = `${plural(rows.length, 'violation')}, ${plural(checks, 'check')}`;
  const back = reachedBackTo(list);
  const text = back === null ? `${found}. End of the list.` : `${found} back to ${back}.`;
  return (
    <footer className={styles.footer}>
      <span>{text}</span>
      <Announce>{text}</Announce>
      {list.hasNextPage && <GoOn list={list}>Show more</GoOn>}
    </footer>
  );
}

export function Nothing(props: { list: List; filtered: boolean; live: boolean; tenant: string }) {
  const { list, filtered, live, tenant } = props;
  const icon = IconViolations;
  const back = reachedBackTo(list);
  if (back !== null) {
    return (
      <EmptyState icon={icon} title="No results so far" action={<GoOn list={list}>Continue searching</GoOn>}>
        Searched back to {back}.
      </EmptyState>
    );
  }
  if (filtered) {
    return (
      <EmptyState icon={icon} title="No results">
        {live ? 'New violations will appear here.' : 'Remove a filter, or choose a longer time range.'}
      </EmptyState>
    );
  }
  return (
    <EmptyState
      icon={icon}
      title="No violations in this time range"
      action={
        <LinkButton variant="default" to="/t/$tenant/try" params={{ tenant }}>
          Try a check
        </LinkButton>
      }
    />
  );
}

function GoOn({ list, children }: { list: List; children: React.ReactNode }) {
  return (
    <Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>
      {children}
    </Button>
  );
}

function reachedBackTo(list: List): string | null {
  const last = list.data?.pages.at(-1);
  if (!last || last.next_cursor === null) return null;
  const moment = last.scanned_until ?? last.items.at(-1)?.requested_at;
  return moment ? exactTime(Date.parse(moment)) : null;
}
