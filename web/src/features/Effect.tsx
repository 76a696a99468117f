import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { sentence } from '~/api/problem';
import { keepSame } from '~/api/queries';
import type { components } from '~/api/schema';
import { exactNumber, percent, plainTime, plural } from '~/domain/format';

type NewRule = components['schemas']['NewRule'];
type Figure = components['schemas']['Figure'];

/** What rules would have done in the last day, from recorded checks: it stands beside Save wherever limits are edited. */
export function Effect({ tenant, rules }: { tenant: string; rules: NewRule[] }) {
  const [asked] = useDebouncedValue(JSON.stringify(rules), 400);
  const queryKey = ['effect', tenant, asked];
  const { data, error } = useQuery({
    queryKey,
    placeholderData: keepSame(queryKey),
    staleTime: 60_000,
    retry: false,
    queryFn: ({ signal }) =>
      body(
        api.POST('/api/v1/tenants/{tenant}/effect', {
          params: { path: { tenant } },
          body: { rules: JSON.parse(asked) as NewRule[] },
          signal, // a later edit cancels the request
        }),
      ),
  });
  if (error) return <p className="soft">The effect is not known: {sentence(error)}</p>;
  if (!data) return <p className="soft">Replaying the last day…</p>;
  if (data.since === null) {
    return (
      <p className="soft">
        {data.is_recording
          ? 'The effect appears here once checks were recorded.'
          : 'Record checks (Settings, Tenant) to see here what a change would have done.'}
      </p>
    );
  }
  const { newly_denied: newly, no_longer_denied: noLonger, checks } = data;
  return (
    <p role="status" aria-label="Effect">
      Since {plainTime(Date.parse(data.since))} it would have denied <strong>{counted(newly)} more</strong>{' '}
      and <strong>{counted(noLonger)} fewer</strong> of {counted(checks)} checks
      {newly.value > 0 && ` (${percent(newly.value / Math.max(1, checks.value))} newly denied)`}.
      {data.users.length > 0 &&
        ` Most affected: ${data.users
          .map(
            (user) =>
              `${user.user_id ?? user.ip} (${user.newly_denied > 0 ? `+${user.newly_denied}` : `−${user.no_longer_denied}`})`,
          )
          .join(', ')}.`}
      {data.share < 1 && ` From a sample of ${percent(data.share)} of users and addresses.`}
      {data.left_out.length > 0 && ` ${plural(data.left_out.length, 'rule')} could not be replayed.`}
    </p>
  );
}

function counted({ value, error }: Figure) {
  return error > 0
    ? `${exactNumber(Math.round(value))} ± ${exactNumber(Math.ceil(error))}`
    : exactNumber(value);
}
