import { SegmentedControl } from '@mantine/core';
import { chooseZone, type Zone, zone } from '~/domain/zone';

export function ZoneChoice() {
  return (
    <SegmentedControl
      fullWidth
      size="xs"
      m={4}
      aria-label="Times"
      value={zone}
      onChange={(value) => chooseZone(value as Zone)}
      data={[
        { value: 'local', label: 'Local time' },
        { value: 'utc', label: 'UTC' },
      ]}
    />
  );
}
