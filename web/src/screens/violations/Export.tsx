import { Button, Menu } from '@mantine/core';
import { exportAddress, type ViolationFilter } from '~/api/violations';
import { IconDownload } from '~/components/icons';
import type { Span } from '~/domain/range';

interface Props {
  tenant: string;
  span: Span;
  filter: ViolationFilter;
}

/** Downloads all that the filters match, however much it is. */
export function Export({ tenant, span, filter }: Props) {
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button variant="default" leftSection={<IconDownload size={14} />}>
          Export
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item component="a" download href={exportAddress(tenant, span, filter, 'csv')}>
          CSV, for spreadsheets
        </Menu.Item>
        <Menu.Item component="a" download href={exportAddress(tenant, span, filter, 'jsonl')}>
          JSON lines, for programs
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
