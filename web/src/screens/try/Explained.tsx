import { Link } from '@tanstack/react-router';
import type { Explanation } from '~/api/types';
import { CodeBlock } from '~/components/CodeBlock';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { type MatchedTier, matchedTiers } from '~/domain/check';
import { duration, plural } from '~/domain/format';
import { limitSentence, unitOf } from '~/domain/rate';
import styles from './TryIt.module.css';

interface Props {
  tenant: string;
  explanation: Explanation;
}

/** Every rule that matches, in the order in which they are asked, and how each stands. */
export function MatchedRules({ tenant, explanation }: Props) {
  const rows = matchedTiers(explanation);
  if (rows.length === 0) return null;
  return (
    <Card
      flush
      title={`${plural(rows.length, 'rule')} matched`}
      lead="All of them must have the tokens; if one lacks them, none is charged."
    >
      <table className={styles.matched} aria-label="Matched rules">
        <thead>
          <tr>
            <th scope="col">Rule and limit</th>
            <th scope="col">Says</th>
            <th scope="col">Tokens left</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.rule.rule_id}>
              <td>
                <RuleLink tenant={tenant} rule={row.rule} />
                <span className={styles.limit}>{limitOf(row.rule)}</span>
              </td>
              <td>
                <Says {...row} />
              </td>
              <td>
                <Left {...row} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

/** The rules that nearly matched, each with the reason it did not. */
export function NearMisses({ tenant, explanation: { near_misses } }: Props) {
  if (near_misses.length === 0) return null;
  return (
    <Card flush title={`${plural(near_misses.length, 'rule')} did not match`}>
      <ul className={styles.misses}>
        {near_misses.map((rule) => (
          <li key={rule.rule_id}>
            <RuleLink tenant={tenant} rule={rule} />
            <span className="soft">{rule.reason}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

/** What the check endpoint would say beside the body. */
export function Headers({ explanation: { headers } }: Pick<Props, 'explanation'>) {
  if (headers.length === 0) return null;
  return (
    <Card title="Headers" lead="What a client that never looks at the body goes by.">
      <CodeBlock
        label="Headers of the answer"
        code={headers.map(({ name, value }) => `${name}: ${value}`).join('\n')}
      />
    </Card>
  );
}

type Named = Pick<MatchedTier['rule'], 'rule_id' | 'key_pattern' | 'name' | 'plan'>;

function RuleLink({ tenant, rule: { rule_id, key_pattern, name, plan } }: { tenant: string; rule: Named }) {
  const beside = [name, plan].filter(Boolean).join(' · ');
  return (
    <Link
      to="/t/$tenant/rules/$rule"
      params={{ tenant, rule: String(rule_id) }}
      className={styles.rule}
      title={beside ? `${key_pattern} · ${beside}` : key_pattern}
    >
      <code>{key_pattern}</code>
      {beside && <span> {beside}</span>}
    </Link>
  );
}

function limitOf({ action, rate_per_second, burst_capacity, overridden }: MatchedTier['rule']): string {
  if (action === 'block') return 'Blocks';
  if (action === 'bypass') return 'Passes without any other rule';
  if (rate_per_second === null || burst_capacity === null) return '–';
  const limit = limitSentence({ rate_per_second, rate_unit: unitOf(rate_per_second), burst_capacity });
  return overridden ? `${limit} (the user’s own)` : limit;
}

function Says({ rule, tier, decides }: MatchedTier) {
  const wait = tier.retry_after_ms ? ` for ${duration(tier.retry_after_ms)}` : '';
  if (rule.mode === 'shadow')
    return <Outcome tone="shadow">{tier.allowed ? 'would allow' : `would deny${wait}`}</Outcome>;
  if (tier.allowed) return <Outcome tone="allowed">allows</Outcome>;
  return <Outcome tone="denied">{`${decides ? 'decides: ' : ''}denies${wait}`}</Outcome>;
}

function Left({ tier: { remaining, limit } }: MatchedTier) {
  if (remaining === null || limit === null) return <>–</>;
  return (
    <span className={styles.level}>
      <span>
        <Num value={Math.floor(remaining * 100) / 100} /> of <Num value={limit} />
      </span>
      <span className={styles.track} aria-hidden>
        <span className={styles.fill} style={{ transform: `scaleX(${Math.min(1, remaining / limit)})` }} />
      </span>
    </span>
  );
}
