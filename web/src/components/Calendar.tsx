import { DatePicker } from '@mantine/dates';
import styles from '@mantine/dates/styles.layer.css?url';
import { useEffect, useRef } from 'react';

interface Props {
  /** The day that has the focus, such as 2026-11-23. */
  day: string;
  onPick: (day: string) => void;
}

/** The days of a month, for the arrow keys and the mouse. Its styles are loaded with it, as few screens need them. */
export default function Calendar({ day, onPick }: Props) {
  const root = useRef<HTMLDivElement>(null);
  // The popover gives the focus when it opens, which is before this part of the code is loaded for the first time.
  useEffect(() => root.current?.querySelector<HTMLElement>('[data-autofocus]')?.focus(), []);
  return (
    <>
      <link rel="stylesheet" href={styles} />
      <DatePicker
        ref={root}
        value={day}
        defaultDate={day}
        hideOutsideDates
        weekendDays={[]}
        ariaLabels={{ previousMonth: 'Previous month', nextMonth: 'Next month' }}
        getDayProps={(date) => (date === day ? { 'data-autofocus': true } : {})}
        __stopPropagation
        onChange={(picked) => picked && onPick(picked)}
      />
    </>
  );
}
