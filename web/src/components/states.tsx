import { Button, Code, Skeleton } from '@mantine/core';
import type { Icon } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { AwayError, isKind, isStatus, ProblemError, sentence } from '~/api/problem';
import { leastRole } from '~/domain/roles';
import { IconAlert, IconLock } from './icons';
import styles from './states.module.css';

interface EmptyProps {
  icon?: Icon;
  title: string;
  children?: React.ReactNode;
  action?: React.ReactNode;
}

export function EmptyState({ icon: Shape, title, children, action }: EmptyProps) {
  return (
    <div className={styles.state}>
      {Shape && (
        <div className={styles.icon}>
          <Shape size={20} aria-hidden />
        </div>
      )}
      <h2>{title}</h2>
      {children && <p className={styles.text}>{children}</p>}
      {action && <div className={styles.action}>{action}</div>}
    </div>
  );
}

interface ErrorProps {
  error: unknown;
  onRetry?: () => void;
}

export function ErrorState({ error, onRetry }: ErrorProps) {
  if (isKind(error, 'second-factor-required')) return <NeedsFactor />;
  if (isStatus(error, 403)) return <NoPermission>{sentence(error)}</NoPermission>;
  const id = error instanceof ProblemError ? error.document.request_id : undefined;
  return (
    <div className={styles.state} role="alert">
      <div className={styles.icon}>
        <IconAlert size={20} aria-hidden />
      </div>
      <h2>{title(error)}</h2>
      <p className={styles.text}>{sentence(error)}</p>
      {id && (
        <p className={styles.text}>
          Request <Code>{id}</Code>
        </p>
      )}
      {onRetry && (
        <div className={styles.action}>
          <Button variant="default" onClick={onRetry}>
            Try again
          </Button>
        </div>
      )}
    </div>
  );
}

export function NeedsFactor() {
  return (
    <EmptyState
      icon={IconLock}
      title="Set up a second factor first"
      action={
        <Button component={Link} to="/profile">
          Set up on your profile
        </Button>
      }
    >
      It takes a minute and an authenticator app.
    </EmptyState>
  );
}

function title(error: unknown): string {
  if (error instanceof AwayError) return 'The server is not responding';
  if (isStatus(error, 404)) return 'Not found';
  if (error instanceof ProblemError) return error.document.title;
  return 'Something went wrong';
}

export function NoPermission({
  need = 'own',
  children,
}: {
  need?: keyof typeof leastRole;
  children?: React.ReactNode;
}) {
  return (
    <EmptyState icon={IconLock} title="You do not have permission">
      {children ?? `This requires ${leastRole[need]}.${need === 'platform' ? '' : ' An owner can change your role.'}`}
    </EmptyState>
  );
}

/** Content below waits until this is replaced; see .in-order. */
export function Awaited() {
  return <div data-loading hidden />;
}

export function LoadingLines({ lines = 6 }: { lines?: number }) {
  const widths = ['92%', '76%', '84%', '68%', '88%', '72%'];
  return (
    <div className={styles.lines} role="status" aria-label="Loading" data-loading>
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike and never move
        <Skeleton key={line} height={12} width={widths[line % widths.length]} radius="sm" />
      ))}
    </div>
  );
}
