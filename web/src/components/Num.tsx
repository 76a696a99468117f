import { Tooltip } from '@mantine/core';
import { exactNumber, shortNumber } from '~/domain/format';

export function Num({ value, unit }: { value: number; unit?: string }) {
  const short = shortNumber(value);
  const exact = exactNumber(value);
  const text = <span className="numeric">{unit ? `${short} ${unit}` : short}</span>;
  if (short === exact) return text;
  return <Tooltip label={unit ? `${exact} ${unit}` : exact}>{text}</Tooltip>;
}
