import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { api } from '~/api/client';
import { sentence } from '~/api/problem';
import { keepSame, rulesQuery } from '~/api/queries';
import type { EffectLeftOut, EffectOfRule, EffectOfUser, Figure, EffectQuestion as Question } from '~/api/types';
import { exactNumber, shortTime, timeSpan } from '~/domain/format';
import { identityLabel } from '~/domain/rule';
import styles from './Effect.module.css';
import { RuleLink } from './RuleLink';

type Counts = Pick<EffectOfRule, 'newly_denied' | 'no_longer_denied'>;

interface Props {
  tenant: string;
  question: Question;
}

/** Used where the usual number of checks says too little. */
const most_checks = 1_000_000;

/** A later edit cancels the request. */
export function useEffectOf(tenant: string, question: Question | null) {
  const wanted = JSON.stringify(question);
  const [asked] = useDebouncedValue(wanted, 400);
  const user = useMemo(() => (JSON.parse(asked) as Question | null)?.override?.user_id, [asked]);
  const queryKey = ['effect', tenant, user, asked];
  const ask = (signal: AbortSignal, more: Partial<Question>) =>
    api.post('/api/v1/tenants/{tenant}/effect', {
      tenant,
      body: { ...(JSON.parse(asked) as Question), ...more },
      signal,
    });
  const first = useQuery({
    queryKey,
    enabled: asked !== 'null',
    placeholderData: keepSame(queryKey),
    staleTime: 60_000,
    retry: false,
    queryFn: ({ signal }) => ask(signal, {}),
    // Checks are stored minutes after they were asked.
    refetchInterval: ({ state: { data } }) => (data?.is_recording && data.since === null ? 30_000 : false),
  });
  const wide = useQuery({
    queryKey: [...queryKey, most_checks],
    enabled: !first.isPlaceholderData && !!first.data && isVague(first.data),
    staleTime: 60_000,
    retry: false,
    queryFn: ({ signal }) => ask(signal, { most_checks }),
  });
  const isOutdated = first.isPlaceholderData || asked !== wanted;
  // Figures of one user never stand beside another.
  return {
    data: user === question?.override?.user_id ? (wide.data ?? first.data) : undefined,
    error: isOutdated ? null : first.error,
    isOutdated,
  };
}

export function EffectLine({ children, ...props }: Props & { children: React.ReactNode }) {
  const { data, isOutdated } = useEffectOf(props.tenant, props.question);
  return (
    <details className={styles.line}>
      <summary aria-busy={isOutdated} className={isOutdated ? 'soft' : undefined}>
        Effect:{' '}
        {data && data.since !== null ? (
          isVague(data) ? (
            vague
          ) : isNone(data) ? (
            `none of ${counted(data.checks)} recorded checks decided otherwise`
          ) : (
            <>
              <strong>{netOf(data)}</strong> denied of {counted(data.checks)} recorded checks
            </>
          )
        ) : (
          'not known'
        )}
      </summary>
      <Effect {...props} />
      {children}
    </details>
  );
}

/** Has room for most answers, so that Save stays put. */
export function Effect(props: Props) {
  return (
    <div className={styles.effect}>
      <InWords {...props} />
    </div>
  );
}

function InWords({ tenant, question }: Props) {
  const { data, error, isOutdated } = useEffectOf(tenant, question);
  if (error) return <p className="soft">The effect is not known: {sentence(error)}</p>;
  if (!data) return <p className="soft">Replaying the last day…</p>;
  if (data.since === null) {
    return (
      <p className="soft">
        {!data.is_recording
          ? 'Record checks (page Replays) to see here what a change would have done.'
          : data.none_since
            ? `No checks of this user were recorded since ${shortTime(Date.parse(data.none_since))}.`
            : (data.note ?? 'The effect appears here once checks were recorded.')}
      </p>
    );
  }
  const isKnown = !isVague(data);
  const until = data.until ?? data.since;
  const users = isKnown ? data.users.filter((user) => user.newly_denied !== user.no_longer_denied) : [];
  return (
    <p role="status" aria-label="Effect" aria-busy={isOutdated} className={isOutdated ? 'soft' : undefined}>
      {isKnown ? (
        <>
          Of {counted(data.checks)} checks recorded from {timeSpan(Date.parse(data.since), Date.parse(until), 'minute')}
          , this change would have{' '}
          {isNone(data) ? (
            'decided none otherwise'
          ) : (
            <>
              denied <strong>{netOf(data)}</strong>
            </>
          )}
          .
        </>
      ) : (
        vague
      )}
      {users.length > 0 &&
        ` Most affected: ${users.map((user) => `${user.user_id ?? user.ip} (${signed(change(user))})`).join(', ')}.`}
      {isKnown && data.bound_by !== null && (
        <>
          {' '}
          Another rule denies this user first: <Binding tenant={tenant} id={data.bound_by} />.
        </>
      )}
      {notesOf(data.rules)}
      {leftOut(data.left_out)}
    </p>
  );
}

function Binding({ tenant, id }: { tenant: string; id: string }) {
  const { data: rules } = useQuery(rulesQuery(tenant));
  return <RuleLink tenant={tenant} id={id} rule={rules?.find(({ rule_id }) => rule_id === id)} />;
}

const vague = 'Too few recorded checks looked at.';

function isVague({ newly_denied: newly, no_longer_denied: noLonger }: Counts): boolean {
  return newly.error + noLonger.error > Math.abs(newly.value - noLonger.value) / 2;
}

function change({ newly_denied, no_longer_denied }: EffectOfUser): number {
  return newly_denied - no_longer_denied;
}

function isNone({ newly_denied, no_longer_denied }: Counts): boolean {
  return newly_denied.value === 0 && no_longer_denied.value === 0;
}

function netOf({ newly_denied: newly, no_longer_denied: noLonger }: Counts): string {
  const value = newly.value - noLonger.value;
  const error = newly.error + noLonger.error;
  if (value === 0) return 'as many, but others';
  return `${counted({ value: Math.abs(value), error })} ${value < 0 ? 'fewer' : 'more'}`;
}

/** "+17", "−1,017" */
function signed(value: number): string {
  return `${value > 0 ? '+' : '−'}${exactNumber(Math.abs(value))}`;
}

function notesOf(rules: EffectOfRule[]): string {
  return [...new Set(rules.flatMap(({ note }) => (note ? [` ${note}`] : [])))].join('');
}

function leftOut(all: EffectLeftOut[]): string {
  return [...new Set(all.map(({ why }) => why))]
    .map((why) => {
      const of = all.filter((rule) => rule.why === why);
      const named = of.slice(0, 3).map(({ rule }) => `“${identityLabel(rule)}”`);
      if (of.length > named.length) named.push(`${exactNumber(of.length - named.length)} more`);
      return ` Not replayed: ${named.join(', ')}, because ${why}; recorded denials stand.`;
    })
    .join('');
}

export function effectSentence(effect: EffectOfRule): string {
  const { mode, note } = effect;
  if (note) return note;
  if (isVague(effect)) return vague;
  if (isNone(effect)) return 'No recorded check would be decided otherwise.';
  return `Of the recorded checks, ${netOf(effect)} ${mode === 'shadow' ? 'would be reported' : 'denied'}.`;
}

function counted({ value, error }: Figure) {
  return error > 0 ? `${exactNumber(Math.round(value))} ± ${exactNumber(Math.ceil(error))}` : exactNumber(value);
}
