import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { recentDenialsQuery, topQuery } from '~/api/traffic';
import type { Top, TopBy, TopItem } from '~/api/types';
import { Num } from '~/components/Num';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RuleName } from '~/components/RuleLink';
import { LoadingLines } from '~/components/states';
import { clockTime, exactTime } from '~/domain/format';
import { type Group, groupNouns, isLowerBound } from '~/domain/group';
import type { Span } from '~/domain/range';
import { Blocked, useBlock } from '~/features/temporary/Blocked';
import { GroupMenu } from '~/features/temporary/GroupMenu';
import { RuleMenu } from '~/features/temporary/RuleMenu';
import { useRole } from '~/session';
import styles from './Overview.module.css';

const most = 6;
const lists: { by: TopBy; title: string }[] = [
  { by: 'user', title: 'Users' },
  { by: 'rule', title: 'Rules' },
  { by: 'endpoint', title: 'Endpoints' },
  { by: 'ip', title: 'IP addresses' },
];

/** The users, rules, endpoints and addresses with the most denials. */
export function TopLists({ tenant, span }: { tenant: string; span: Span }) {
  return (
    <section aria-label="Denied most" className={styles.tops}>
      {lists.map(({ by, title }) => (
        <TopList key={by} tenant={tenant} span={span} by={by} title={title} />
      ))}
    </section>
  );
}

interface Props {
  tenant: string;
  span: Span;
  by: TopBy;
  title: string;
}

function TopList({ tenant, span, by, title }: Props) {
  const top = useQuery(topQuery(tenant, span, by, most));
  return (
    <Card
      title={
        <>
          <span className="aside">Most denied: </span>
          {title}
        </>
      }
      actions={
        <>
          <span className={styles.unit}>{top.data && isLowerBound(top.data) ? 'denied at least' : 'denied'}</span>
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ group: by, range: span.text }}>
            All<span className="aside"> {title}</span>
          </Link>
        </>
      }
      flush
    >
      <Query query={top} loading={<LoadingLines lines={5} />}>
        {(data) => (
          <div className={top.isPlaceholderData ? styles.old : undefined}>
            <Ranking tenant={tenant} span={span} top={data} />
          </div>
        )}
      </Query>
    </Card>
  );
}

function Ranking({ tenant, span, top }: { tenant: string; span: Span; top: Top }) {
  const { edit } = useRole();
  const items = top.items.filter(({ denied }) => denied > 0);
  if (items.length === 0) return <p className={styles.none}>No denials in this time.</p>;
  const first = items[0]?.denied ?? 1;
  return (
    <>
      <ol className={styles.ranking}>
        {items.map((item) => (
          <li key={item.value} style={{ '--share': item.denied / first } as React.CSSProperties}>
            <span className={styles.name}>
              <RankedLink tenant={tenant} span={span} by={top.by} item={item} />
              {top.by !== 'rule' && <State tenant={tenant} group={{ by: top.by, value: item.value }} />}
            </span>
            <span className={styles.count}>
              <Num value={item.denied} />
              {edit && top.by !== 'rule' && (
                <GroupMenu tenant={tenant} group={{ by: top.by, value: item.value }} denied={item.denied} />
              )}
              {edit && item.rule && !item.rule.removed && (
                <RuleMenu tenant={tenant} rule={item.rule} denied={item.denied} />
              )}
            </span>
          </li>
        ))}
      </ol>
      <p className={styles.none}>
        {span.moves && `As of ${clockTime(Date.parse(top.until))}. `}
        {top.unattributed > 0 && (
          <>
            Lower bounds: <Num value={top.unattributed} unit="denials" /> have no recorded {groupNouns[top.by]}.{' '}
          </>
        )}
        {top.looked_back_to && `From the latest 100,000 records, back to ${exactTime(Date.parse(top.looked_back_to))}.`}
      </p>
    </>
  );
}

/** Whether a group is blocked, or how many checks of an address are denied now. */
function State({ tenant, group }: { tenant: string; group: Group }) {
  const { data } = useQuery({ ...recentDenialsQuery(tenant, group.by), enabled: group.by === 'ip' });
  const block = useBlock(tenant, group);
  if (block) return <Blocked tenant={tenant} group={group} />;
  const rate = data?.get(group.value);
  return rate ? <span className="soft">now {rate}</span> : null;
}

function RankedLink({ tenant, span, by, item }: { tenant: string; span: Span; by: TopBy; item: TopItem }) {
  const { value, rule } = item;
  switch (by) {
    case 'user':
      return (
        <Link to="/t/$tenant/users/$user" params={{ tenant, user: value }}>
          {value}
        </Link>
      );
    case 'rule':
      return (
        <Link to="/t/$tenant/violations" params={{ tenant }} search={{ rule: Number(value), range: span.text }}>
          <RuleName id={Number(value)} rule={rule ?? undefined} />
        </Link>
      );
    default:
      return (
        <Link to="/t/$tenant/violations" params={{ tenant }} search={{ [by]: value, range: span.text }}>
          {value}
        </Link>
      );
  }
}
