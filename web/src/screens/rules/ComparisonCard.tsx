import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import type { Rule } from '~/api/types';
import { Chart } from '~/charts/Chart';
import { Effect } from '~/components/Effect';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { exactNumber } from '~/domain/format';
import { ruleEffect } from '~/domain/rule';
import styles from './Comparison.module.css';
import { type Comparison, comparisonQuery, comparisonWords, isCollecting } from './comparison';
import { promoted } from './ruleDraft';

export function ComparisonCard({ tenant, candidate }: { tenant: string; candidate: Rule }) {
  const comparison = useQuery(comparisonQuery(tenant, candidate.rule_id));
  return (
    <Card title="Candidate and live rule">
      <Query query={comparison}>
        {(data) => (
          <div className={styles.comparison}>
            <dl className={styles.limits}>
              <div>
                <dt>
                  Live rule{' '}
                  <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: data.live.rule_id }}>
                    Open
                  </Link>
                </dt>
                <dd>{ruleEffect(data.live)}</dd>
              </div>
              <div>
                <dt>Candidate</dt>
                <dd>{ruleEffect(candidate)}</dd>
              </div>
              <div>
                <dt>Compared since</dt>
                <dd>{isCollecting(data) ? 'Not yet' : <RelativeTime at={data.since} />}</dd>
              </div>
            </dl>
            <p role="status">{comparisonWords(data)}</p>
            <Lines data={data} />
            <Additional tenant={tenant} pattern={candidate.key_pattern} data={data} />
            {data.looked_back_to && (
              <p className="soft">
                By {subjectOf(candidate.key_pattern).toLowerCase()} since <RelativeTime at={data.looked_back_to} />,
                because there is too much before.
              </p>
            )}
            <section aria-label="Effect of promoting it">
              <h3>Effect of promoting it</h3>
              <Effect tenant={tenant} question={{ rules: [promoted(candidate, data.live)] }} />
            </section>
          </div>
        )}
      </Query>
    </Card>
  );
}

const lines = [
  { of: 'live_denied', label: 'denied by the live rule', tone: 'denied' },
  { of: 'candidate_denied', label: 'more denied by the candidate', tone: 'shadow', dashed: true },
] as const;

function Lines({ data }: { data: Comparison }) {
  const x = useMemo(() => data.points.map(({ at }) => Date.parse(at) / 1000), [data]);
  const series = useMemo(
    () => lines.map(({ of, ...line }) => ({ ...line, values: data.points.map((point) => point[of]) })),
    [data],
  );
  if (data.points.length < 2) return null;
  return <Chart label={comparisonWords(data)} x={x} series={series} height={180} yMin={4} unfinished />;
}

interface AdditionalProps {
  tenant: string;
  pattern: string;
  data: Comparison;
}

function Additional({ tenant, pattern, data }: AdditionalProps) {
  const { items, subjects } = data;
  if (items.length === 0) return null;
  const subject = subjectOf(pattern);
  return (
    <div>
      <table className={styles.subjects} aria-label="Denied in addition">
        <thead>
          <tr>
            <th scope="col">{subject}</th>
            <th scope="col">Denied by the live rule</th>
            <th scope="col">More by the candidate</th>
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.subject}>
              <td>
                {subject === 'User' ? (
                  <Link to="/t/$tenant/users/$user" params={{ tenant, user: item.subject }}>
                    {item.subject}
                  </Link>
                ) : (
                  item.subject || 'All requests together'
                )}
              </td>
              <td>{exactNumber(item.live_denied)}</td>
              <td>{exactNumber(item.candidate_denied)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {subjects > items.length && <p className="soft">And {exactNumber(subjects - items.length)} more.</p>}
    </div>
  );
}

function subjectOf(pattern: string): 'User' | 'Address' | 'Bucket' {
  if ((pattern.match(/\{/g) ?? []).length !== 1) return 'Bucket';
  if (pattern.startsWith('user:{user_id}')) return 'User';
  return pattern.startsWith('ip:{ip}') ? 'Address' : 'Bucket';
}

export function TriedBeside({ tenant, candidate }: { tenant: string; candidate: Rule }) {
  const { data } = useQuery(comparisonQuery(tenant, candidate.rule_id));
  return (
    <div className={styles.tried}>
      <Outcome tone="shadow">Candidate</Outcome>
      <span>
        <strong>{ruleEffect(candidate)}</strong> is tried beside this rule. {data && comparisonWords(data)}
      </span>
      <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(candidate.rule_id) }}>
        Compare, promote or remove
      </Link>
    </div>
  );
}
