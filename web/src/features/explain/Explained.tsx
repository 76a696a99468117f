import type { Explanation } from '~/api/types';
import { CodeBlock } from '~/components/CodeBlock';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { type MatchedTier, matchedTiers } from '~/domain/check';
import { duration, plural } from '~/domain/format';
import { lentHint, lentText } from '~/domain/lent';
import { meterUnit } from '~/domain/meter';
import { actionLabels } from '~/domain/rule';
import styles from './Explain.module.css';

interface Props {
  tenant: string;
  explanation: Explanation;
}

export function MatchedRules({ tenant, explanation }: Props) {
  const rows = matchedTiers(explanation);
  if (rows.length === 0) return null;
  return (
    <Card flush title={`${plural(rows.length, 'rule')} matched`}>
      <table className={styles.matched} aria-label="Matched rules">
        <thead>
          <tr>
            <th scope="col">Rule and limit</th>
            <th scope="col">Result</th>
            <th scope="col">Left</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.rule.rule_id}>
              <td>
                <RuleLink tenant={tenant} id={String(row.rule.rule_id)} rule={row.rule} />
                <span className={styles.limit}>{limitOf(row.rule)}</span>
                {row.rule.at_gateway && <span className={styles.limit}>{atGateway[row.rule.at_gateway]}</span>}
              </td>
              <td>
                <Result {...row} />
              </td>
              <td>
                <TokensLeft {...row} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

export function NearMisses({ tenant, explanation: { near_misses, unmatched_meters } }: Props) {
  const unmatched = unmatched_meters.length > 0 && (
    <p role="status">
      <Outcome tone="degraded">No matching rule counts {unmatched_meters.join(', ')}</Outcome>
    </p>
  );
  if (near_misses.length === 0) return unmatched;
  return (
    <>
      {unmatched}
      <details>
        <summary className="soft">Why not {plural(near_misses.length, 'other rule')}?</summary>
        <ul className={styles.misses}>
          {near_misses.map((rule) => (
            <li key={rule.rule_id}>
              <RuleLink tenant={tenant} id={String(rule.rule_id)} rule={rule} />
              <span className="soft">{rule.reason}</span>
            </li>
          ))}
        </ul>
      </details>
    </>
  );
}

export function Headers({ explanation: { headers } }: Pick<Props, 'explanation'>) {
  if (headers.length === 0) return null;
  return (
    <Card title="Headers">
      <CodeBlock label="Response headers" code={headers.map(({ name, value }) => `${name}: ${value}`).join('\n')} />
    </Card>
  );
}

const atGateway: Record<NonNullable<MatchedTier['rule']['at_gateway']>, string> = {
  denies_delays: 'Gateways cannot wait: there it denies what it would delay.',
  not_applied: 'Not applied at gateways: they do not say when a request ends.',
};

function limitOf({ action, limit_text, overridden, share_percent }: MatchedTier['rule']): string {
  if (action !== 'limit') return actionLabels[action];
  if (limit_text === null) return '–';
  const share = share_percent === undefined ? '' : ` (${share_percent} % of the configured rate)`;
  return `${limit_text}${overridden ? ' (override)' : share}`;
}

function Result({ rule, tier, decides }: MatchedTier) {
  const wait = tier.retry_after_ms ? ` for ${duration(tier.retry_after_ms)}` : '';
  if (rule.mode === 'shadow')
    return <Outcome tone="shadow">{tier.allowed ? 'would allow' : `would deny${wait}`}</Outcome>;
  if (tier.allowed) return <Outcome tone="allowed">allows</Outcome>;
  return <Outcome tone="denied">{`${decides ? 'decides: ' : ''}denies${wait}`}</Outcome>;
}

function TokensLeft({ rule, tier: { remaining, limit } }: MatchedTier) {
  if (remaining === null || limit === null) return <>–</>;
  return (
    <span className={styles.level}>
      <span>
        <Num value={Math.floor(remaining * 100) / 100} /> of <Num value={limit} unit={meterUnit(rule.meter)} />
      </span>
      {rule.lent && (
        <span className="soft" title={lentHint}>
          {lentText(rule)}
        </span>
      )}
      <span className={styles.track} aria-hidden>
        <span className={styles.fill} style={{ transform: `scaleX(${Math.min(1, remaining / limit)})` }} />
      </span>
    </span>
  );
}
