import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api } from '~/api/client';
import { tenantKey } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Chart } from '~/charts/Chart';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { exactNumber, percent } from '~/domain/format';
import { isReplayable } from '~/features/replay/useLimitDraft';
import { useRole } from '~/session';
import styles from './Rules.module.css';
import { changedMode, ruleHistoryQuery } from './ruleHistory';

const phrases = {
  enforce: { verb: 'were denied', label: 'denied' },
  shadow: { verb: 'would have been denied', label: 'would deny' },
  mixed: { verb: 'were denied, or would have been while in shadow', label: 'denied or would deny' },
};

export function Verdicts({ tenant, rule }: { tenant: string; rule: Rule }) {
  const series = useQuery({
    queryKey: tenantKey(tenant, 'stats', 'series', rule.rule_id),
    queryFn: ({ signal }) =>
      api.get('/api/v1/tenants/{tenant}/stats/series', { tenant, rule_id: rule.rule_id, step_seconds: 900, signal }),
    refetchInterval: 30_000,
  });
  const { edit } = useRole();
  const shadow = rule.mode === 'shadow';
  const { data: history } = useQuery(ruleHistoryQuery(tenant, rule.rule_id));
  return (
    <Card
      title="Last 24 hours"
      actions={
        <>
          {edit && isReplayable(rule) && (
            <Link to="/t/$tenant/replays" params={{ tenant }} search={{ open: 'new', rule: rule.rule_id }}>
              Replay another limit
            </Link>
          )}
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ rule: rule.rule_id, range: '24h' }}>
            View violations
          </Link>
        </>
      }
    >
      <Query query={series}>
        {({ from, points, total }) => {
          const checks = total.allowed + total.denied;
          if (checks === 0) return <p className="soft">No checks matched.</p>;
          const mixed = changedMode(history?.items ?? [], from);
          const { verb, label } = mixed ? phrases.mixed : phrases[rule.mode];
          const words =
            `${exactNumber(total.denied)} of ${exactNumber(checks)} checks ${verb} ` +
            `(${percent(total.denied / checks)}).`;
          return (
            <>
              <p className={styles.numbers}>{words}</p>
              <Chart
                label={words}
                height={140}
                x={points.map(({ at }) => Date.parse(at) / 1000)}
                series={[
                  { label: 'allowed', tone: 'allowed', values: points.map(({ allowed }) => allowed) },
                  { label, tone: shadow ? 'shadow' : 'denied', values: points.map(({ denied }) => denied), fill: true },
                ]}
              />
            </>
          );
        }}
      </Query>
    </Card>
  );
}
