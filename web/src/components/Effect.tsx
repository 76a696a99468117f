import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { api, body } from '~/api/client';
import { sentence } from '~/api/problem';
import { keepSame } from '~/api/queries';
import type { components } from '~/api/schema';
import { exactNumber, percent, plural, timeSpan } from '~/domain/format';
import styles from './Effect.module.css';

type Question = components['schemas']['EffectQuestion'];
type Figure = components['schemas']['Figure'];
type EffectOfUser = components['schemas']['EffectOfUser'];
export type EffectOfRule = components['schemas']['EffectOfRule'];

/**
 * What new limits would have done in the last day, from recorded checks. A later edit cancels the request; until its own
 * answer arrives, the answer before it is outdated.
 */
export function useEffectOf(tenant: string, question: Question | null) {
  const wanted = JSON.stringify(question);
  const [asked] = useDebouncedValue(wanted, 400);
  const user = useMemo(() => (JSON.parse(asked) as Question | null)?.override?.user_id, [asked]);
  const queryKey = ['effect', tenant, user, asked];
  const { data, error, isPlaceholderData } = useQuery({
    queryKey,
    enabled: asked !== 'null',
    placeholderData: keepSame(queryKey),
    staleTime: 60_000,
    retry: false,
    queryFn: ({ signal }) =>
      body(
        api.POST('/api/v1/tenants/{tenant}/effect', {
          params: { path: { tenant } },
          body: JSON.parse(asked) as Question,
          signal,
        }),
      ),
    // Checks are stored a minute after they were asked, and few checks some minutes later.
    refetchInterval: ({ state: { data } }) => (data?.is_recording && data.since === null ? 30_000 : false),
  });
  const isOutdated = isPlaceholderData || asked !== wanted;
  // Figures of one user never stand beside another.
  return {
    data: user === question?.override?.user_id ? data : undefined,
    error: isOutdated ? null : error,
    isOutdated,
  };
}

/** The effect in words. It stands beside Save wherever limits are edited, in room for most answers, so that Save stays put. */
export function Effect(props: { tenant: string; question: Question }) {
  return (
    <div className={styles.effect}>
      <InWords {...props} />
    </div>
  );
}

function InWords({ tenant, question }: { tenant: string; question: Question }) {
  const { data, error, isOutdated } = useEffectOf(tenant, question);
  if (error) return <p className="soft">The effect is not known: {sentence(error)}</p>;
  if (!data) return <p className="soft">Replaying the last day…</p>;
  if (data.since === null) {
    return (
      <p className="soft">
        {!data.is_recording
          ? 'Record checks (page Replays) to see here what a change would have done.'
          : (data.note ?? 'The effect appears here once checks were recorded.')}
      </p>
    );
  }
  const { newly_denied: newly, no_longer_denied: noLonger, checks } = data;
  return (
    <p role="status" aria-label="Effect" aria-busy={isOutdated} className={isOutdated ? 'soft' : undefined}>
      {covered(data.since, data.until)} it would have denied <strong>{counted(newly)} more</strong> and{' '}
      <strong>{counted(noLonger)} fewer</strong> of {counted(checks)} checks
      {newly.value > 0 && ` (${percent(newly.value / Math.max(1, checks.value))} newly denied)`}.
      {data.users.length > 0 &&
        ` Most affected: ${data.users
          .map((user) => `${user.user_id ?? user.ip} (${changeOf(user)})`)
          .join(', ')}.`}
      {data.share < 1 && ` From a sample of ${percent(data.share)} of users and addresses.`}
      {' Checks of the last minutes are not recorded yet.'}
      {data.left_out.length > 0 &&
        ` ${plural(data.left_out.length, 'rule')} could not be replayed; recorded denials stand.`}
    </p>
  );
}

/** "Of what was recorded from 25 Nov, 13:05 to 25 Nov, 14:02 UTC,": the last minutes are never in it. */
function covered(since: string, until: string | null): string {
  return `Of what was recorded from ${timeSpan(Date.parse(since), Date.parse(until ?? since), 'minute')},`;
}

/** "+17", "−1,017" or "+17, −1,017" */
function changeOf({ newly_denied, no_longer_denied }: EffectOfUser): string {
  return [
    newly_denied > 0 && `+${exactNumber(newly_denied)}`,
    no_longer_denied > 0 && `−${exactNumber(no_longer_denied)}`,
  ]
    .filter(Boolean)
    .join(', ');
}

/** The effect of one rule of several: "In the last day: 412 checks more and 3 fewer denied." */
export function effectSentence({ mode, newly_denied, no_longer_denied }: EffectOfRule): string {
  const denied = mode === 'shadow' ? 'would be reported' : 'denied';
  if (newly_denied.value === 0 && no_longer_denied.value === 0)
    return 'No recorded check would be decided otherwise.';
  return `Of the recorded checks, ${counted(newly_denied)} more and ${counted(no_longer_denied)} fewer ${denied}.`;
}

function counted({ value, error }: Figure) {
  return error > 0
    ? `${exactNumber(Math.round(value))} ± ${exactNumber(Math.ceil(error))}`
    : exactNumber(value);
}
