import { Menu } from '@mantine/core';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { exactTime, ownZone, plainTime } from '~/domain/format';
import { brushed, isNamedRange, parseRange, ranges } from '~/domain/range';
import { IconCheck, IconChevronDown, IconClock } from './icons';
import styles from './TimeRange.module.css';

/** The time range of the page. It lives in the URL, so back works and links show the same range. */
export function useTimeRange(fallback = '1h') {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const text = 'range' in search && search.range ? search.range : fallback;
  const set = (range: string) => navigate({ to: '.', search: (old: object) => ({ ...old, range }) });
  return {
    /** The text in the URL; part of query keys. */
    text,
    moves: parseRange(text, 0) === null || isNamedRange(text),
    /** The moments as of now, in milliseconds. */
    at: (now: number) =>
      parseRange(text, now) ?? parseRange(fallback, now) ?? { from: now - 3_600_000, until: now },
    set,
    /** Sets a range chosen on a chart, in seconds. */
    brush: (from: number, until: number) => set(brushed(from * 1000, until * 1000)),
  };
}

/** Chooses the page's time range. */
export function TimeRange({ fallback }: { fallback?: string }) {
  const range = useTimeRange(fallback);
  const named = ranges.find(({ value }) => value === range.text);
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <button type="button" className={styles.range}>
          <IconClock size={14} aria-hidden />
          <span className="aside">Time range: </span>
          {named?.label ?? custom(range.at(Date.now()))}
          <IconChevronDown size={14} aria-hidden />
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        {ranges.map(({ value, label }) => (
          <Menu.Item
            key={value}
            rightSection={value === range.text ? <IconCheck size={14} aria-label="selected" /> : undefined}
            onClick={() => range.set(value)}
          >
            {label}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Label>Times are in {ownZone(Date.now())}.</Menu.Label>
      </Menu.Dropdown>
    </Menu>
  );
}

function custom({ from, until }: { from: number; until: number }): string {
  return `${plainTime(from)} to ${exactTime(until)}`;
}
