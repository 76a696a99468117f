import { Button, Group } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { isStatus, sentence } from '~/api/problem';
import { Dialog } from './Dialog';

interface Props {
  opened: boolean;
  onClose: () => void;
  title: string;
  effect: React.ReactNode;
  verb: string;
  destructive?: boolean;
  /** Somebody else removed the object while the dialog was open. */
  gone?: boolean;
  action: () => Promise<unknown>;
}

/** Cancel has the focus for a destructive action, so that Enter destroys nothing. */
export function ConfirmAction({ opened, onClose, title, effect, verb, destructive, gone, action }: Props) {
  const queries = useQueryClient();
  const acting = useMutation({
    mutationFn: action,
    onSuccess: close,
    onError: (error) => (isStatus(error, 412) || isStatus(error, 404) ? queries.invalidateQueries() : undefined),
  });
  const { isPending: pending, error } = acting;

  // While the action runs, its own success may have removed the object.
  const removed = gone && !pending;

  function close() {
    acting.reset();
    onClose();
  }

  return (
    <Dialog opened={opened} onClose={close} title={title} pending={pending}>
      <div className="soft">{removed ? 'Someone already removed it.' : effect}</div>
      {error !== null && !removed && (
        <p role="alert" style={{ color: 'var(--denied)', marginTop: 12 }}>
          {isStatus(error, 412)
            ? 'Somebody else changed this, so nothing was done. Confirm again to continue.'
            : sentence(error)}
        </p>
      )}
      <Group justify="flex-end" mt="lg">
        <Button variant="default" onClick={close} disabled={pending} data-autofocus={destructive || undefined}>
          {removed ? 'Close' : 'Cancel'}
        </Button>
        <Button
          color={destructive ? 'red.8' : undefined}
          loading={pending}
          disabled={removed}
          onClick={() => acting.mutate()}
          data-autofocus={!destructive || undefined}
        >
          {verb}
        </Button>
      </Group>
    </Dialog>
  );
}
