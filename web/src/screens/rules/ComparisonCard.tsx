import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { Rule } from '~/api/types';
import { Chart } from '~/charts/Chart';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { exactNumber, plural } from '~/domain/format';
import { ruleEffect } from '~/domain/rule';
import styles from './Comparison.module.css';
import { type Comparison, comparisonQuery, comparisonWords } from './comparison';

/** A candidate beside its live rule: both over time, and who is denied by one of them only. */
export function ComparisonCard({ tenant, candidate }: { tenant: string; candidate: Rule }) {
  const comparison = useQuery(comparisonQuery(tenant, candidate.rule_id));
  return (
    <Card title="Candidate and live rule" lead="Both limits against the same traffic.">
      <Query query={comparison}>
        {(data) => (
          <div className={styles.comparison}>
            <Limits tenant={tenant} live={data.live} candidate={candidate} since={data.since} />
            <p role="status">{comparisonWords(data)}</p>
            <Lines data={data} />
            <Differences tenant={tenant} pattern={candidate.key_pattern} data={data} />
            <p className="soft">
              The candidate is not tried on what the live rule denies again at once, and takes tokens only for
              checks that pass. So a looser limit hardly ever denies here. The effect beside Promote decides
              recorded checks anew by both limits.
              {data.looked_back_to && (
                <>
                  {' '}
                  Who differs is counted since <RelativeTime at={data.looked_back_to} />, because there is too
                  much before.
                </>
              )}
            </p>
          </div>
        )}
      </Query>
    </Card>
  );
}

interface LimitsProps {
  tenant: string;
  live: Rule;
  candidate: Rule;
  since: string;
}

function Limits({ tenant, live, candidate, since }: LimitsProps) {
  return (
    <dl className={styles.limits}>
      <div>
        <dt>
          Live rule{' '}
          <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(live.rule_id) }}>
            Open
          </Link>
        </dt>
        <dd>{ruleEffect(live)}</dd>
      </div>
      <div>
        <dt>Candidate</dt>
        <dd>{ruleEffect(candidate)}</dd>
      </div>
      <div>
        <dt>Compared since</dt>
        <dd>
          <RelativeTime at={since} />
        </dd>
      </div>
    </dl>
  );
}

function Lines({ data }: { data: Comparison }) {
  const x = useMemo(() => data.points.map(({ at }) => Date.parse(at) / 1000), [data]);
  const series = useMemo(
    () => [
      {
        label: 'denied by the live rule',
        tone: 'denied' as const,
        values: data.points.map((point) => point.live_denied),
      },
      {
        label: 'would be denied by the candidate',
        tone: 'shadow' as const,
        values: data.points.map((point) => point.candidate_denied),
        dashed: true,
      },
    ],
    [data],
  );
  if (data.points.length < 2) return null;
  return <Chart label={comparisonWords(data)} x={x} series={series} height={180} yMin={4} unfinished />;
}

/** Who is denied by one of the two only. */
function Differences({ tenant, pattern, data }: { tenant: string; pattern: string; data: Comparison }) {
  const { candidate_only, live_only, live_total } = data;
  if (candidate_only.items.length + live_only.items.length === 0) {
    const checks = live_total.allowed + live_total.denied + live_total.bypassed;
    return (
      <EmptyState title={checks === 0 ? 'Waiting for checks' : 'Nobody is denied by only one of them'}>
        Such users or addresses are listed here.
      </EmptyState>
    );
  }
  return (
    <div className={styles.sides}>
      <Differing tenant={tenant} pattern={pattern} title="Denied by the candidate only" of={candidate_only} />
      <Differing tenant={tenant} pattern={pattern} title="Denied by the live rule only" of={live_only} />
    </div>
  );
}

interface DifferingProps {
  tenant: string;
  pattern: string;
  title: string;
  of: Comparison['live_only'];
}

function Differing({ tenant, pattern, title, of: { subjects, items } }: DifferingProps) {
  // A pattern that splits by user alone has the user's id as its subject.
  const isUser = pattern.startsWith('user:{user_id}') && (pattern.match(/\{/g) ?? []).length === 1;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      {items.length === 0 ? (
        <p className="soft">Nobody</p>
      ) : (
        <ul className={styles.subjects}>
          {items.map(({ subject, denied }) => (
            <li key={subject}>
              {isUser ? (
                <Link to="/t/$tenant/users/$user" params={{ tenant, user: subject }}>
                  {subject}
                </Link>
              ) : (
                <span>{subject || 'All requests together'}</span>
              )}
              <span>{plural(denied, 'check')}</span>
            </li>
          ))}
        </ul>
      )}
      {subjects > items.length && <p className="soft">And {exactNumber(subjects - items.length)} more.</p>}
    </section>
  );
}
