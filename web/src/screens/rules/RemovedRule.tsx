import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { rulesOfPatternQuery } from '~/api/queries';
import { removalQuery } from '~/api/removal';
import type { AuditEntry, Rule } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { ErrorState, LoadingLines } from '~/components/states';
import { RelativeTime, useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { actorOf } from '~/domain/actor';
import { ruleOfImage } from '~/domain/algorithm';
import { causeOf } from '~/domain/audit';
import { shortTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { ruleEffect, ruleTitle } from '~/domain/rule';
import { useRole } from '~/session';
import { History } from './History';
import styles from './Rules.module.css';

interface Props {
  tenant: string;
  id: string;
  error: unknown;
}

export function RemovedRule({ tenant, id, error }: Props) {
  const removal = useQuery(removalQuery(tenant, id));
  if (removal.isPending) return <LoadingLines />;
  if (!removal.data?.before) return <ErrorState error={error} />;
  return <Story tenant={tenant} id={id} entry={removal.data} before={removal.data.before} />;
}

interface StoryProps {
  tenant: string;
  id: string;
  entry: AuditEntry;
  before: NonNullable<AuditEntry['before']>;
}

function Story({ tenant, id, entry, before }: StoryProps) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const [restoring, setRestoring] = useState(false);
  const rule = ruleOfImage(before);
  const { data: alike = [] } = useQuery(rulesOfPatternQuery(tenant, rule.key_pattern));
  const now = alike.filter(({ name }) => name === rule.name);
  const cause = causeOf(entry);
  const isExpired = hasExpired(rule, useNow());
  const isInForce = rule.is_active && !isExpired;

  async function restore() {
    await api.post('/api/v1/tenants/{tenant}/audit/{audit_id}/revert', {
      tenant,
      audit_id: entry.audit_id,
      whole: true,
    });
    await changed(queries, tenant, 'rule');
    done(isInForce ? 'Rule restored. Checks follow it within 2 s' : 'Rule restored');
  }

  return (
    <Page
      title={ruleTitle(rule)}
      beside={<Outcome tone="neutral">Removed</Outcome>}
      lead={
        <>
          <code>{rule.key_pattern}</code> on {rule.plan ?? 'all plans'}
        </>
      }
      above={
        <Link to="/t/$tenant/rules" params={{ tenant }}>
          Rules
        </Link>
      }
      actions={
        edit && (
          <Button variant="default" onClick={() => setRestoring(true)}>
            Restore rule
          </Button>
        )
      }
    >
      <p className={styles.sentence} role="note">
        {actorOf(entry)} removed this rule <RelativeTime at={entry.at} />
        {cause && ` (${cause})`}. It was: <strong>{ruleEffect(rule)}</strong>. It matches no check now.{' '}
        <Link to="/t/$tenant/violations" params={{ tenant }} search={{ rule: id }}>
          Its violations
        </Link>{' '}
        remain.
      </p>
      {now.length > 0 && (
        <Card title="Rules in its place">
          <ul className={styles.list}>
            {now.map((one) => (
              <li key={one.rule_id}>
                <RuleLink tenant={tenant} id={one.rule_id} rule={one} />: {ruleEffect(one)}
              </li>
            ))}
          </ul>
        </Card>
      )}
      <Card title="History" flush>
        <History tenant={tenant} ruleId={id} />
      </Card>
      <ConfirmAction
        opened={restoring}
        onClose={() => setRestoring(false)}
        title="Restore this rule?"
        effect={`${restored(rule, isExpired)}${now.length > 0 ? ' The rules in its place stay.' : ''}`}
        verb="Restore rule"
        action={restore}
      />
    </Page>
  );
}

function restored(rule: Rule, isExpired: boolean): string {
  const was = ruleEffect(rule);
  if (!rule.is_active) return `It returns as it was: ${was}, and off. No check uses it until you turn it on.`;
  if (isExpired) {
    return (
      `It returns as it was: ${was}, until ${shortTime(Date.parse(rule.expires_at ?? ''))}. Give it a later ` +
      'end to use it.'
    );
  }
  if (rule.mode === 'shadow') return `Within 2 s it is in shadow mode again as it was: ${was}. It denies nothing.`;
  return `Within 2 s it is in force again as it was: ${was}.`;
}
