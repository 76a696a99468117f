import { Button, Group } from '@mantine/core';
import { queryOptions, useMutation, useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { api } from '~/api/client';
import { startExport } from '~/api/exports';
import { isStatus, sentence } from '~/api/problem';
import { nextLook, tenantKey } from '~/api/queries';
import type { Export } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { IconDownload } from '~/components/icons';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { failed } from '~/components/toast';
import { usePanel } from '~/components/usePanel';
import { Work } from '~/components/Work';
import { plural } from '~/domain/format';

const exportQuery = (tenant: string, id: string) =>
  queryOptions({
    queryKey: tenantKey(tenant, 'exports', id),
    queryFn: ({ signal }) => api.get('/api/v1/tenants/{tenant}/exports/{export_id}', { tenant, export_id: id, signal }),
    refetchInterval: ({ state }) => nextLook(state),
  });

/** The URL names the latest export, so that a reload shows its progress again. */
export function useExport(tenant: string) {
  const show = usePanel<string>('export');
  const { export: id } = useSearch({ strict: false }) as { export?: string };
  const { mutate, isPending } = useMutation({
    mutationFn: startExport,
    onSuccess: ({ export_id }) => show(export_id),
    onError: (error) => failed('Not exported', error),
  });
  const close = () => show(undefined);
  return {
    start: (address: string) => mutate(address),
    isStarting: isPending,
    dialog: id !== undefined && <ExportDialog tenant={tenant} id={id} onClose={close} />,
  };
}

function ExportDialog({ tenant, id, onClose }: { tenant: string; id: string; onClose: () => void }) {
  const query = useQuery(exportQuery(tenant, id));
  const { data, error } = query;
  const isGone = isStatus(error, 404);
  const title = data?.file ? 'Export ready' : data?.finished_at || isGone ? 'No file' : 'Exporting';
  return (
    <Dialog onClose={onClose} title={title} keepOpen>
      {isGone ? <p role="alert">{sentence(error)}</p> : <Query query={query}>{progress}</Query>}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Close
        </Button>
        {data?.file && (
          <Button component="a" href={data.file} download={data.name} leftSection={<IconDownload size={14} />}>
            Download
          </Button>
        )}
      </Group>
    </Dialog>
  );
}

function progress(work: Export) {
  const { name, rows, finished_at, expires_at, file } = work;
  return (
    <>
      <p role="status">
        <code>{name}</code>, {plural(rows, 'row')}
        {!finished_at && ' so far. It goes on when this page is closed.'}
        {file && expires_at && (
          <>
            . Kept until <RelativeTime at={expires_at} />.
          </>
        )}
      </p>
      <Work work={work} label="Export" />
    </>
  );
}
