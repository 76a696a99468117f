import type { Alert } from '~/api/types';
import { Outcome } from '~/components/Outcome';

/** Whether an alert is on, off, or silenced for a time. */
export function AlertState({ alert }: { alert: Alert }) {
  if (!alert.is_active) return <Outcome tone="neutral">Off</Outcome>;
  if (alert.silence) return <Outcome tone="degraded">Silenced</Outcome>;
  return <Outcome tone="allowed">On</Outcome>;
}
