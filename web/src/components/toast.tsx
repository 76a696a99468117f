import { type NotificationData, notifications } from '@mantine/notifications';
import { randomID } from '~/api/client';
import { ProblemError, sentence } from '~/api/problem';
import styles from './toast.module.css';

const closeButtonProps = { 'aria-label': 'Close' };

interface Act {
  label: string;
  run: () => void;
}

/** Mantine pauses a toast only under the pointer, not while it has the focus. */
function show(data: NotificationData, autoClose: number): void {
  notifications.show({
    ...data,
    withBorder: true,
    autoClose,
    closeButtonProps,
    onFocusCapture: () => notifications.update({ ...data, autoClose: false }),
    onBlurCapture: () => notifications.update({ ...data, autoClose }),
  });
}

export function done(message: string, act?: Act): void {
  const id = randomID();
  const run = () => {
    notifications.hide(id);
    act?.run();
  };
  const words = act && (
    <>
      {message}.{' '}
      <button type="button" className={`link-button ${styles.act}`} onClick={run}>
        {act.label}
      </button>
    </>
  );
  show({ id, message: words ?? message }, act ? 10_000 : 4000);
}

export function failed(what: string, error: unknown): void {
  const request = error instanceof ProblemError ? error.document.request_id : undefined;
  const message = request ? `${sentence(error)} (request ${request})` : sentence(error);
  show({ id: randomID(), title: what, message, color: 'red.8', role: 'alert' }, 10_000);
}
