import { Link } from '@tanstack/react-router';
import { patternInWords } from '~/domain/pattern';
import { type Named, ruleDetail } from '~/domain/rule';
import { Outcome } from './Outcome';

interface Props {
  tenant: string;
  id: string;
  /** Missing where the rule is unknown or not loaded yet. */
  rule: (Named & { removed?: boolean }) | undefined;
}

export function RuleLink({ tenant, id, rule }: Props) {
  return (
    <Link to="/t/$tenant/rules/$rule" params={{ tenant, rule: String(id) }} title={rule?.key_pattern}>
      <RuleName id={id} rule={rule} />
    </Link>
  );
}

export function RuleName({ id, rule }: Omit<Props, 'tenant'>) {
  if (!rule) return <>rule {id}</>;
  return (
    <>
      {patternInWords(rule.key_pattern)} <span className="soft">{ruleDetail(rule)}</span>
      {rule.removed && (
        <>
          {' '}
          <Outcome tone="neutral">Removed</Outcome>
        </>
      )}
    </>
  );
}
