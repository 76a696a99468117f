import { Group, Menu } from '@mantine/core';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { serverNow } from '~/api/clock';
import { ownZone, timeSpan } from '~/domain/format';
import { between, isNamedRange, parseRange, ranges } from '~/domain/range';
import { FormDialog } from './FormDialog';
import { IconCheck, IconChevronDown, IconClock } from './icons';
import { MomentField } from './MomentField';
import styles from './TimeRange.module.css';
import { ZoneChoice } from './ZoneChoice';

export function useTimeRange(fallback = '1h') {
  const search = useSearch({ strict: false });
  const navigate = useNavigate();
  const text = 'range' in search && search.range ? search.range : fallback;
  const set = (range: string) => navigate({ to: '.', search: (old: object) => ({ ...old, range }) });
  return {
    text,
    moves: parseRange(text, 0) === null || isNamedRange(text),
    at: (now: number) => parseRange(text, now) ?? parseRange(fallback, now) ?? { from: now - 3_600_000, until: now },
    set,
    brush: (from: number, until: number) => set(between(from * 1000, until * 1000)),
  };
}

export function TimeRange({ fallback }: { fallback?: string }) {
  const range = useTimeRange(fallback);
  const [choosing, setChoosing] = useState(false);
  const named = ranges.find(({ value }) => value === range.text);
  const selected = <IconCheck size={14} aria-label="selected" />;
  return (
    <>
      <Menu position="bottom-end" width={220}>
        <Menu.Target>
          <button type="button" className={styles.range}>
            <IconClock size={14} aria-hidden />
            <span className="aside">Time range: </span>
            {named?.label ?? custom(range.at(serverNow()))}
            <IconChevronDown size={14} aria-hidden />
          </button>
        </Menu.Target>
        <Menu.Dropdown>
          {ranges.map(({ value, label }) => (
            <Menu.Item
              key={value}
              rightSection={value === range.text ? selected : undefined}
              onClick={() => range.set(value)}
            >
              {label}
            </Menu.Item>
          ))}
          <Menu.Item rightSection={named ? undefined : selected} onClick={() => setChoosing(true)}>
            From … until …
          </Menu.Item>
          <Menu.Divider />
          <Menu.Label>Times are in {ownZone(serverNow())}.</Menu.Label>
          <ZoneChoice />
        </Menu.Dropdown>
      </Menu>
      {choosing && (
        <CustomRange
          {...range.at(serverNow())}
          onClose={() => setChoosing(false)}
          onChosen={(from, until) => range.set(between(from, until))}
        />
      )}
    </>
  );
}

interface CustomProps {
  from: number;
  until: number;
  onClose: () => void;
  onChosen: (from: number, until: number) => void;
}

function CustomRange({ from, until, onClose, onChosen }: CustomProps) {
  const [start, setStart] = useState<number | null>(from);
  const [end, setEnd] = useState<number | null>(until);
  const chosen = { from: start ?? Number.NaN, until: end ?? Number.NaN };
  return (
    <FormDialog
      title="Time range"
      verb="Show"
      disabled={!(chosen.from < chosen.until)}
      onClose={onClose}
      save={async () => onChosen(chosen.from, chosen.until)}
    >
      {() => (
        <Group grow align="flex-start" gap={8}>
          <MomentField label="From" value={start} onChange={setStart} />
          <MomentField
            label="Until"
            value={end}
            error={chosen.from >= chosen.until ? 'must be later than the start' : undefined}
            onChange={setEnd}
          />
        </Group>
      )}
    </FormDialog>
  );
}

function custom({ from, until }: { from: number; until: number }): string {
  return timeSpan(from, until);
}
