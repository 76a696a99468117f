import { ActionIcon, Popover, TextInput, type TextInputProps } from '@mantine/core';
import { useState } from 'react';
import { serverNow } from '~/api/clock';
import { moment, ownZone } from '~/domain/format';
import { fieldMoment, fieldText } from '~/domain/zone';
import { IconCalendar } from './icons';
import { later } from './later';

const Calendar = later(() => import('./Calendar'));

interface Props extends Pick<TextInputProps, 'label' | 'error' | 'disabled'> {
  description?: string;
  /** In milliseconds; null for an empty field, NaN for a text that is not a time. */
  value: number | null;
  onChange: (value: number | null) => void;
}

export function MomentField({ value, onChange, description, error, ...field }: Props) {
  const [typed, setTyped] = useState('');
  const [picking, setPicking] = useState(false);
  // A text has no seconds and is ambiguous where clocks go back, so an unedited time keeps its value.
  const at = Number.isNaN(value) ? null : value;
  const saved = at === null ? '' : fieldText(at);
  const text = Object.is(fieldMoment(typed), value) ? typed : saved;
  function type(text: string) {
    setTyped(text);
    onChange(fieldMoment(text));
  }
  function pick(day: string) {
    type(`${day} ${saved.slice(11) || '00:00'}`);
    setPicking(false);
  }
  const calendar = (
    <Popover opened={picking} onChange={setPicking} position="bottom-end" trapFocus returnFocus withinPortal>
      <Popover.Target>
        <ActionIcon aria-label="Pick a day" disabled={field.disabled} onClick={() => setPicking(!picking)}>
          <IconCalendar size={16} />
        </ActionIcon>
      </Popover.Target>
      <Popover.Dropdown>
        <Calendar day={fieldText(at ?? serverNow()).slice(0, 10)} onPick={pick} />
      </Popover.Dropdown>
    </Popover>
  );
  return (
    <TextInput
      {...field}
      placeholder="2026-12-31 14:30"
      error={Number.isNaN(value) ? 'Write it as 2026-12-31 14:30.' : error}
      description={[description, at === null ? `In ${ownZone(serverNow())}.` : moment(at)].filter(Boolean).join(' ')}
      inputWrapperOrder={['label', 'input', 'description', 'error']}
      rightSection={calendar}
      autoComplete="off"
      value={text}
      onChange={(event) => type(event.currentTarget.value)}
    />
  );
}
