import { Button, Group } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
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

/**
 * The dialog stays open if the action fails. Of a destructive one, Cancel has the focus, so that Enter destroys
 * nothing.
 */
export function ConfirmAction({ opened, onClose, title, effect, verb, destructive, gone, action }: Props) {
  const queries = useQueryClient();
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>(null);

  // While the action runs, its own success may have removed the object.
  const removed = gone && !pending;

  function close() {
    setError(null);
    onClose();
  }

  async function act() {
    setPending(true);
    setError(null);
    try {
      await action();
      close();
    } catch (failure) {
      // A refetch shows the newer version, or that it is gone.
      if (isStatus(failure, 412) || isStatus(failure, 404)) await queries.invalidateQueries();
      setError(failure);
    } finally {
      setPending(false);
    }
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
          onClick={act}
          data-autofocus={!destructive || undefined}
        >
          {verb}
        </Button>
      </Group>
    </Dialog>
  );
}
