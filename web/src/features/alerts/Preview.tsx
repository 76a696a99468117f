import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { sentence } from '~/api/problem';
import { keepSame, tenantKey } from '~/api/queries';
import type { AlertCondition, Rule } from '~/api/types';
import { RelativeTime } from '~/components/Time';
import { exactTime, plural } from '~/domain/format';
import { ruleLabel } from '~/domain/rule';
import styles from './Preview.module.css';
import { countedText } from './words';

/** How many times are listed. */
const listed = 5;

interface Props {
  tenant: string;
  /** null while the form is not filled in. */
  condition: AlertCondition | null;
  rules: Rule[];
}

/** How often an alert would have fired in the last week. It follows the form. */
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
      body(
        api.POST('/api/v1/tenants/{tenant}/alerts/preview', {
          params: { path: { tenant } },
          body: JSON.parse(asked) as AlertCondition,
          signal,
        }),
      ),
  });
  if (!condition) return null;
  if (error) return <p className="soft">How often it would have fired is not known: {sentence(error)}</p>;
  if (!data) return <p className="soft">Judging the last 7 days…</p>;
  const { fired, firings, looked_back_to } = data;
  const since = looked_back_to ? `since ${exactTime(Date.parse(looked_back_to))}` : 'in the last 7 days';
  return (
    <section className={styles.preview} aria-label="Preview">
      <p role="status">
        {fired === 0 ? (
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
              <RelativeTime at={at} /> · {countedText(condition.kind ?? 'denials', count)}
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
