import { Tooltip } from '@mantine/core';
import { exactTime, relative } from '~/domain/format';
import { useNow } from './Time';

export function Ends({ at, verb = 'ends' }: { at: string; verb?: 'ends' | 'goes back' }) {
  const now = useNow();
  const end = Date.parse(at);
  if (end <= now) return null;
  return (
    <Tooltip label={exactTime(end)}>
      <time dateTime={at} className="numeric soft">
        {verb} {relative(end, now)}
      </time>
    </Tooltip>
  );
}
