import { Button, Menu } from '@mantine/core';
import { serverNow } from '~/api/clock';
import { exportAddress } from '~/api/exports';
import type { ViolationFilter } from '~/api/violations';
import { IconDownload } from '~/components/icons';
import { isoMoments, type Span } from '~/domain/range';
import { useExport } from '~/features/exports/useExport';

interface Props {
  tenant: string;
  span: Span;
  filter: ViolationFilter;
}

export function Export({ tenant, span, filter }: Props) {
  const { start, isStarting, dialog } = useExport(tenant);
  const begin = (format: 'csv' | 'jsonl') =>
    start(exportAddress(tenant, 'violations/export', { format, ...isoMoments(span, serverNow()), ...filter }));
  return (
    <>
      <Menu position="bottom-end">
        <Menu.Target>
          <Button variant="default" loading={isStarting} leftSection={<IconDownload size={14} />}>
            Export
          </Button>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => begin('csv')}>CSV, for spreadsheets</Menu.Item>
          <Menu.Item onClick={() => begin('jsonl')}>JSON lines, for programs</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {dialog}
    </>
  );
}
