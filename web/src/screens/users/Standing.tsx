import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { rulesQuery } from '~/api/queries';
import type { Rule, User, Violation } from '~/api/types';
import { LinkButton } from '~/components/LinkButton';
import { Outcome, type Tone } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { Awaited } from '~/components/states';
import { RelativeTime, useNow } from '~/components/Time';
import { here } from '~/components/usePanel';
import { shortTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { limitSentence } from '~/domain/rate';
import { whatHappened } from '~/domain/violation';
import { useBlock } from '~/features/temporary/Blocked';
import { EndNow } from '~/features/temporary/EndNow';
import { isPartly, rulesNaming } from '~/features/temporary/naming';
import styles from './Standing.module.css';

interface Props {
  tenant: string;
  user: User;
  edit: boolean;
  overridable: ReadonlySet<string>;
  onOverride: (rule: string) => void;
}

/** Rules about this user or an address of the user, and the reason of the last denial. */
export function Standing({ tenant, user, edit, overridable, onOverride }: Props) {
  const rules = useQuery(rulesQuery(tenant));
  // Reading the patterns of 10,000 rules takes up to 0.1 s.
  const named = useMemo(() => rulesNaming(rules.data ?? [], user.user_id), [rules.data, user.user_id]);
  const now = useNow(1000); // a rule that was ended a moment ago is gone at once
  if (rules.isPending) return <Awaited />;
  const naming = named.filter((rule) => !hasExpired(rule, now));
  const last = user.recent_violations.find(({ mode }) => mode === 'enforce');
  const addresses = addressesOf(user);
  if (naming.length === 0 && !last) return null;
  return (
    <Card title="At present" flush>
      {naming.map((rule) => (
        <div key={rule.rule_id} className={styles.line}>
          <Outcome tone={toneOf(rule)}>{wordOf(rule)}</Outcome>
          <p>
            {isPartly(rule) && 'Some checks, '}
            {rule.action === 'limit' && `${limitSentence(rule)}, `}
            {rule.expires_at === null ? 'without end' : `until ${shortTime(Date.parse(rule.expires_at))}`} by rule{' '}
            <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
          </p>
          {edit && rule.expires_at !== null && <EndNow tenant={tenant} rule={rule} />}
        </div>
      ))}
      {addresses.map((ip) => (
        <BlockOfAddress key={ip} tenant={tenant} ip={ip} edit={edit} />
      ))}
      {last && (
        <LastDenial
          violation={last}
          onOverride={
            edit && last.reason !== 'blocked' && overridable.has(last.rule_id)
              ? () => onOverride(last.rule_id)
              : undefined
          }
        />
      )}
    </Card>
  );
}

function addressesOf({ recent_violations }: User): string[] {
  return [...new Set(recent_violations.flatMap(({ ip_address }) => ip_address ?? []))].slice(0, 3);
}

function BlockOfAddress({ tenant, ip, edit }: { tenant: string; ip: string; edit: boolean }) {
  const block = useBlock(tenant, { by: 'ip', value: ip });
  if (!block) return null;
  const { rule, own } = block;
  return (
    <div className={styles.line}>
      <Outcome tone="denied">Blocked</Outcome>
      <p>
        Address {ip}, from which this user was denied,{' '}
        {rule.expires_at === null ? 'without end' : `until ${shortTime(Date.parse(rule.expires_at))}`} by rule{' '}
        <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
      </p>
      {edit && own && rule.expires_at !== null && <EndNow tenant={tenant} rule={rule} />}
    </div>
  );
}

interface LastProps {
  violation: Violation;
  onOverride: (() => void) | undefined;
}

function LastDenial({ violation, onOverride }: LastProps) {
  return (
    <div className={styles.line}>
      <Outcome tone="denied">Last denial</Outcome>
      <p>
        <RelativeTime at={violation.last_at} />: {whatHappened(violation)}
      </p>
      <span className={styles.acts}>
        <LinkButton size="xs" variant="default" {...here({ open: violation.violation_id })}>
          Details
        </LinkButton>
        {onOverride && (
          <Button size="xs" variant="default" onClick={onOverride}>
            Raise this limit
          </Button>
        )}
      </span>
    </div>
  );
}

function toneOf({ mode, action }: Rule): Tone {
  if (mode === 'shadow') return 'shadow';
  return ({ block: 'denied', limit: 'degraded', bypass: 'allowed' } as const)[action];
}

function wordOf({ mode, action }: Rule): string {
  const word = { block: 'Blocked', limit: 'Limited', bypass: 'Let through' }[action];
  return mode === 'shadow' ? `Shadow: ${word.toLowerCase()}` : word;
}
