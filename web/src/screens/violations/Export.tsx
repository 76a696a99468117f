import { Button, Menu } from '@mantine/core';
import { serverNow } from '~/api/clock';
import { exportAddress } from '~/api/exports';
import type { ViolationFilter } from '~/api/violations';
import { IconDownload } from '~/components/icons';
import { isoMoments, type Span } from '~/domain/range';

interface Props {
  tenant: string;
  span: Span;
  filter: ViolationFilter;
}

/** Downloads everything that the filters match. */
export function Export({ tenant, span, filter }: Props) {
  const address = (format: 'csv' | 'jsonl') =>
    exportAddress(tenant, 'violations/export', { format, ...isoMoments(span, serverNow()), ...filter });
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button variant="default" leftSection={<IconDownload size={14} />}>
          Export
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item component="a" download href={address('csv')}>
          CSV, for spreadsheets
        </Menu.Item>
        <Menu.Item component="a" download href={address('jsonl')}>
          JSON lines, for programs
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
