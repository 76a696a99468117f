import { DatePicker } from '@mantine/dates';
import styles from '@mantine/dates/styles.layer.css?url';
import { useEffect, useRef } from 'react';

interface Props {
  day: string;
  onPick: (day: string) => void;
}

/** Its styles are loaded with it, as few screens need them. */
export default function Calendar({ day, onPick }: Props) {
  const root = useRef<HTMLDivElement>(null);
  // The popover gives the focus before this code is loaded for the first time.
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
