import { DatePicker } from '@mantine/dates';
import '@mantine/dates/styles.layer.css';

interface Props {
  /** The day that is chosen, such as 2026-11-23, or nothing. */
  day: string;
  onPick: (day: string) => void;
}

/** The days of a month, for the arrow keys and the mouse. */
export default function Calendar({ day, onPick }: Props) {
  return (
    <DatePicker
      value={day || null}
      defaultDate={day || undefined}
      ariaLabels={{ previousMonth: 'Previous month', nextMonth: 'Next month' }}
      __stopPropagation
      onChange={(picked) => picked && onPick(picked)}
    />
  );
}
