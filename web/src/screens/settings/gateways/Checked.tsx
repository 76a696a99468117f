import { useEffect } from 'react';
import { ProblemError, sentence } from '~/api/problem';
import type { Check } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { ErrorState } from '~/components/states';
import { exactAmount, requests } from '~/domain/meter';
import styles from './Gateways.module.css';

const ofMapping = /^\/mapping(\/|$)/;

export function useRefusal(error: unknown, onRefused: (words: string | undefined) => void) {
  const fields = error instanceof ProblemError ? (error.document.errors ?? []) : [];
  const wrong = fields.filter(({ pointer }) => ofMapping.test(pointer));
  const words = wrong.map(({ pointer, detail }) => `${nameOf(pointer)} ${detail}`.trim()).join('; ') || undefined;
  useEffect(() => onRefused(words), [words, onRefused]);
}

const nameOf = (pointer: string) => pointer.replace(/^\/(mapping(\/|$))?/, '').replaceAll('/', '.');

export function Refused({ error }: { error: unknown }) {
  if (!(error instanceof ProblemError) || error.status !== 400) return <ErrorState error={error} />;
  const all = error.document.errors ?? [];
  const fields = all.filter(({ pointer }) => !ofMapping.test(pointer));
  if (fields.length < all.length) return <p className="soft">Correct the JSON of the mapping first.</p>;
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
            <code>{nameOf(pointer)}</code> {detail}
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
