import type { MailStatus } from '~/api/types';
import { Outcome } from './Outcome';

export function MailOutcome({ mail: { state, attempts, error } }: { mail: MailStatus }) {
  if (state === 'sent') return <Outcome tone="allowed">Sent</Outcome>;
  return (
    <>
      {state === 'failed' ? (
        <Outcome tone="denied">Not sent</Outcome>
      ) : (
        <Outcome tone="neutral">{attempts > 0 && error ? 'Trying again' : 'Queued'}</Outcome>
      )}
      {error && <div className="soft">{error}</div>}
    </>
  );
}
