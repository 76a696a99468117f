import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { api } from '~/api/client';
import { sentence } from '~/api/problem';
import { keepSame, tenantKey } from '~/api/queries';
import type { AlertCondition, AlertPreview, Rule } from '~/api/types';
import { RelativeTime } from '~/components/Time';
import { plural, shortTime } from '~/domain/format';
import { ruleLabel } from '~/domain/rule';
import styles from './Preview.module.css';
import { countedText } from './words';

const listed = 5;

const hour = 3_600_000;

interface Props {
  tenant: string;
  condition: AlertCondition | null;
  rules: Rule[];
}

export function Preview({ tenant, condition, rules }: Props) {
  const [asked] = useDebouncedValue(JSON.stringify(condition), 400);
  const queryKey = tenantKey(tenant, 'alerts', 'preview', asked);
  const { data, error } = useQuery({
    queryKey,
    enabled: asked !== 'null',
    placeholderData: keepSame(queryKey),
    staleTime: 60_000,
    retry: false,
    queryFn: ({ signal }) =>
      api.post('/api/v1/tenants/{tenant}/alerts/preview', {
        tenant,
        body: JSON.parse(asked) as AlertCondition,
        signal,
      }),
  });
  if (!condition) return null;
  if (error) return <p className="soft">How often it would have fired is not known: {sentence(error)}</p>;
  if (!data) return <p className="soft">Judging the last 7 days…</p>;
  const { fired, firings, until } = data;
  const since = sinceWhen(data);
  return (
    <section className={styles.preview} aria-label="Preview">
      <p role="status">
        {data.counted_since === null ? (
          <>It would not have fired: no check was counted in the last 7 days.</>
        ) : fired === 0 ? (
          <>It would not have fired {since}.</>
        ) : (
          <>
            It would have fired <strong>{plural(fired, 'time')}</strong> {since}:
          </>
        )}
      </p>
      <ul>
        {firings.slice(0, listed).map(({ at, rule_id, subject, count }) => {
          const rule = rules.find((one) => one.rule_id === rule_id);
          return (
            <li key={`${at} ${rule_id} ${subject}`}>
              <RelativeTime at={endOfMinute(at, until)} /> · {countedText(condition.kind ?? 'denials', count)}
              {subject !== null && ` of ${subject}`}
              {condition.rule_id === null && rule && ` by ${ruleLabel(rule)}`}
            </li>
          );
        })}
        {fired > listed && <li className="soft">and {plural(fired - listed, 'time')} before</li>}
      </ul>
    </section>
  );
}

/** A new rule, or one that met no check before, has counts of a part of the time. */
function sinceWhen({ since, counted_since, looked_back_to }: AlertPreview): string {
  if (looked_back_to) return `since ${shortTime(Date.parse(looked_back_to))}`;
  const first = Date.parse(counted_since ?? since);
  return first - Date.parse(since) > hour ? `since ${shortTime(first)}, when counts begin` : 'in the last 7 days';
}

function endOfMinute(at: string, until: string): string {
  return new Date(Math.min(Date.parse(at) + 60_000, Date.parse(until))).toISOString();
}
