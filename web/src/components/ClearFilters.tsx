import { Button } from '@mantine/core';
import { IconX } from './icons';

export function ClearFilters({ onClear }: { onClear: () => void }) {
  return (
    <Button variant="subtle" color="gray" leftSection={<IconX size={14} aria-hidden />} onClick={onClear}>
      Clear
    </Button>
  );
}
