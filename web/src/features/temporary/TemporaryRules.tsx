import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { rulesQuery } from '~/api/queries';
import { openScheduledQuery } from '~/api/scheduled';
import type { Rule, ScheduledChange } from '~/api/types';
import { ActButton } from '~/components/ActButton';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { Awaited } from '~/components/states';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { shortTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { limitSentence } from '~/domain/rate';
import { becomes } from '~/domain/scheduled';
import { useRole } from '~/session';
import { EndNow } from './EndNow';
import styles from './temporary.module.css';

export function TemporaryRules({ tenant }: { tenant: string }) {
  const { edit } = useRole();
  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const now = useNow(1000); // a rule that was ended a moment ago is gone at once
  const holding = rules
    .filter((rule) => rule.expires_at !== null && rule.is_active && !hasExpired(rule, now))
    .toSorted((a, b) => Date.parse(a.expires_at ?? '') - Date.parse(b.expires_at ?? ''));
  const { data: open = [], isPending } = useQuery(openScheduledQuery(tenant));
  const changes = open.filter(({ state }) => state === 'in_force');
  if (isPending) return <Awaited />;
  if (holding.length + changes.length === 0) return null;
  return (
    <Card title="Temporary rules" flush>
      <ul className={styles.list} aria-label="Temporary rules">
        {holding.map((rule) => (
          <li key={rule.rule_id}>
            <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
            <span className="soft">
              {{ block: 'Blocks', limit: limitSentence(rule), bypass: 'Lets through' }[rule.action]} until{' '}
              {shortTime(Date.parse(rule.expires_at ?? ''))}
            </span>
            {edit && <EndNow tenant={tenant} rule={rule} />}
          </li>
        ))}
        {changes.map((change) => (
          <li key={`change ${change.change_id}`}>
            <Changed tenant={tenant} change={change} rules={rules} />
            {edit && <TakeBackNow tenant={tenant} change={change} />}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Changed({ tenant, change, rules }: { tenant: string; change: ScheduledChange; rules: Rule[] }) {
  const [one, ...others] = change.rules;
  const rule = others.length === 0 && rules.find(({ rule_id }) => rule_id === one?.rule_id);
  const until = `until ${shortTime(Date.parse(change.ends_at ?? ''))}`;
  if (!rule || !one) {
    return (
      <>
        <Link to="/t/$tenant/plans" params={{ tenant }}>
          {change.title}
        </Link>
        <span className="soft">Changed {until}</span>
      </>
    );
  }
  return (
    <>
      <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
      <span className="soft">
        {becomes(rule, one.change)} {until}
      </span>
    </>
  );
}

function TakeBackNow({ tenant, change }: { tenant: string; change: ScheduledChange }) {
  const queries = useQueryClient();
  async function end() {
    const path = { tenant, change_id: change.change_id };
    const { failure } = await api.post('/api/v1/tenants/{tenant}/scheduled-changes/{change_id}/cancel', path);
    await changed(queries, tenant, 'scheduled_change', 'rule');
    done(failure ?? 'Taken back. It takes effect within 2 s');
  }
  return (
    <ActButton size="xs" act={end} failure="The change was not taken back">
      End now
    </ActButton>
  );
}
