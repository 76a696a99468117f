import { notifications } from '@mantine/notifications';
import { ProblemError, sentence } from '~/api/problem';

const closeButtonProps = { 'aria-label': 'Close' };

/** Confirms an action for a few seconds. */
export function done(message: string): void {
  notifications.show({ message, withBorder: true, autoClose: 4000, closeButtonProps });
}

/** Reports a failure until it is closed. */
export function failed(what: string, error: unknown): void {
  const id = error instanceof ProblemError ? error.document.request_id : undefined;
  notifications.show({
    title: what,
    message: id ? `${sentence(error)} (request ${id})` : sentence(error),
    color: 'red.8',
    withBorder: true,
    autoClose: false,
    closeButtonProps,
  });
}
