import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { ruleEffect } from '~/domain/rule';
import styles from './Comparison.module.css';
import { comparisonQuery, comparisonWords } from './comparison';

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
