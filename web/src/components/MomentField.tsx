import { TextInput, type TextInputProps } from '@mantine/core';
import { serverNow } from '~/api/clock';
import { moment, ownZone } from '~/domain/format';
import { fieldMoment } from '~/domain/zone';

interface Props extends Pick<TextInputProps, 'label' | 'error' | 'disabled'> {
  description?: string;
  /** The text of a datetime-local field, in the zone that the reader chose. */
  value: string;
  onChange: (value: string) => void;
}

/**
 * A field for a time. Browsers show the date in the order of their own language, such as 11/12/2026, so the field says
 * in
 * words which day and zone that is.
 */
export function MomentField({ value, onChange, description, ...field }: Props) {
  const at = fieldMoment(value);
  return (
    <TextInput
      {...field}
      type="datetime-local"
      description={[description, Number.isNaN(at) ? `In ${ownZone(serverNow())}.` : moment(at)]
        .filter(Boolean)
        .join(' ')}
      inputWrapperOrder={['label', 'input', 'description', 'error']}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
