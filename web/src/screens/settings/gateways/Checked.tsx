import { ProblemError, sentence } from '~/api/problem';
import type { Check } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { ErrorState } from '~/components/states';
import { exactAmount, requests } from '~/domain/meter';
import styles from './Gateways.module.css';

/** Why there is no check: the mapping is not valid, or the request is not. */
export function Refused({ error }: { error: unknown }) {
  if (!(error instanceof ProblemError) || error.status !== 400) return <ErrorState error={error} />;
  const fields = error.document.errors ?? [];
  if (fields.length === 0) {
    return (
      <p role="status">
        <Outcome tone="denied">400</Outcome> {sentence(error)}
      </p>
    );
  }
  return (
    <div role="status">
      <p className="soft">There is none yet:</p>
      <ul className={styles.reasons}>
        {fields.map(({ pointer, detail }) => (
          <li key={pointer + detail}>
            <code>{pointer.replace(/^\/mapping\//, '').replaceAll('/', '.')}</code> {detail}
          </li>
        ))}
      </ul>
    </div>
  );
}

const costsText = (costs: NonNullable<Check['costs']>) =>
  Object.entries(costs)
    .filter(([meter, cost]) => meter !== requests || cost > 0)
    .map(([meter, cost]) => exactAmount(cost, meter))
    .join(' · ');

/** The check as a list, with its missing fields, because rules for them do not match. */
export function factsOf({ user_id, plan, endpoint, method, ip, cost, costs, attributes }: Check) {
  const lacking = (what: string) => <span className="soft">{what}</span>;
  return {
    User: user_id ? <code>{user_id}</code> : lacking('none'),
    Plan: plan ? <code>{plan}</code> : lacking('the user’s plan, or the default'),
    Endpoint: endpoint ? <code>{`${method ? `${method} ` : ''}${endpoint}`}</code> : lacking('none'),
    Address: ip ? <code>{ip}</code> : lacking('none'),
    Cost: <code>{costs ? costsText(costs) : (cost ?? 1)}</code>,
    ...Object.fromEntries(
      Object.entries(attributes ?? {}).map(([name, value]) => [`Attribute ${name}`, <code key={name}>{value}</code>]),
    ),
  };
}
