import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { Crossing, Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RuleLink } from '~/components/RuleLink';
import { ShowMore } from '~/components/ShowMore';
import { LoadingLines } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { exactNumber, percent, plainTime, zonedTime } from '~/domain/format';
import { exactAmount } from '~/domain/meter';
import { patternInWords } from '~/domain/pattern';
import { ruleName } from '~/domain/rule';
import styles from './Crossings.module.css';
import { crossingsQuery, type WhichCrossings } from './queries';

interface Props {
  tenant: string;
  which: WhichCrossings;
  rules: Rule[] | undefined;
}

export function Crossings({ tenant, which, rules }: Props) {
  const list = useInfiniteQuery(crossingsQuery(tenant, which));
  const rows = list.data ?? [];
  if (rows.length === 0 && !list.isError) return null;
  return (
    <Card title="Threshold events" flush>
      <Query query={list} loading={<LoadingLines lines={2} />}>
        {() => (
          <>
            <ul className={styles.list} aria-label="Crossings">
              {rows.map((crossing) => (
                <Row
                  key={crossing.crossing_id}
                  tenant={tenant}
                  crossing={crossing}
                  rule={rules && (rules.find(({ rule_id }) => rule_id === crossing.rule_id) ?? null)}
                  names={'rule' in which ? 'who' : 'rule'}
                />
              ))}
            </ul>
            {(list.hasNextPage || rows.length > 10) && <ShowMore list={list} rows={rows} noun="crossing" />}
          </>
        )}
      </Query>
    </Card>
  );
}

interface RowProps {
  tenant: string;
  crossing: Crossing;
  /** Null if it was removed, undefined while that is unknown. */
  rule: Rule | null | undefined;
  names: 'who' | 'rule';
}

function Row({ tenant, crossing, rule, names }: RowProps) {
  const { share, mode, crossed_at, used, burst_capacity, meter, window_ends_at } = crossing;
  return (
    <li className={styles.crossing}>
      <div>
        <span className={styles.what}>
          <strong className="numeric">{percent(share / 100)}</strong> {names === 'rule' ? 'of' : 'by'}{' '}
          {names === 'rule' ? (
            <OfRule tenant={tenant} crossing={crossing} rule={rule} />
          ) : (
            <Who tenant={tenant} crossing={crossing} />
          )}
          {mode === 'shadow' && <Outcome tone="shadow">Shadow</Outcome>}
        </span>
        <span className="soft">
          {exactNumber(used)} of {exactAmount(burst_capacity, meter)} used; window until{' '}
          {zonedTime(Date.parse(window_ends_at), rule?.window_zone ?? 'UTC')}
        </span>
      </div>
      <div className={styles.when}>
        <span className="numeric">{plainTime(Date.parse(crossed_at), 'minute')}</span>
        <span className="soft">
          <RelativeTime at={crossed_at} />
        </span>
      </div>
    </li>
  );
}

function OfRule({ tenant, crossing, rule }: Omit<RowProps, 'names'>) {
  const { rule_id, key_pattern } = crossing;
  if (rule) return <RuleLink tenant={tenant} id={rule_id} rule={rule} />;
  return (
    <>
      {patternInWords(key_pattern)}{' '}
      <span className="soft">{[ruleName(crossing), rule === null && 'removed'].filter(Boolean).join(' · ')}</span>
    </>
  );
}

function Who({ tenant, crossing: { user_id, subject } }: Pick<RowProps, 'tenant' | 'crossing'>) {
  if (user_id === null) return subject === '' ? <>all requests together</> : <code>{subject}</code>;
  return (
    <>
      <Link to="/t/$tenant/users/$user" params={{ tenant, user: user_id }}>
        {user_id}
      </Link>
      {subject !== user_id && <code>{subject}</code>}
    </>
  );
}
