import { Button, NativeSelect } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, type Tagged } from '~/api/client';
import { lastHourQuery, rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ConfirmAction } from '~/components/ConfirmAction';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { exactNumber } from '~/domain/format';
import { isOn } from '~/domain/group';
import { ruleEffect } from '~/domain/rule';
import styles from './Rules.module.css';

export function EnforceRule({ tenant, saved: { value: shadow, etag } }: { tenant: string; saved: Tagged<Rule> }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const { data: lastHour } = useQuery({ ...lastHourQuery(tenant), enabled: asking });
  const denials = lastHour?.get(shadow.rule_id);
  const live = liveRules(rules, shadow, useNow());
  const into = chosen === '' ? undefined : (live.find(({ rule_id }) => String(rule_id) === chosen) ?? live[0]);

  async function enforce() {
    const inForce = await api.post('/api/v1/tenants/{tenant}/rules/{rule_id}/promote', {
      tenant,
      rule_id: shadow.rule_id,
      etag,
      body: { into_rule_id: into?.rule_id ?? null, into_version: into?.version },
    });
    await navigate({
      to: '/t/$tenant/rules/$rule',
      params: { tenant, rule: String(inForce.rule_id) },
      ignoreBlocker: true,
    });
    await changed(queries, tenant, 'rule');
    done('Rule enforced. It takes effect within 2 s', undoOf(tenant, inForce));
  }

  return (
    <>
      <Button onClick={() => setAsking(true)}>Enforce</Button>
      <ConfirmAction
        opened={asking}
        onClose={() => setAsking(false)}
        title="Enforce this rule?"
        effect={
          <div className={styles.form}>
            {live.length > 0 && (
              <NativeSelect
                label="Replaces"
                value={into ? String(into.rule_id) : ''}
                onChange={(event) => setChosen(event.currentTarget.value)}
                data={[
                  ...live.map((rule) => ({ value: String(rule.rule_id), label: nameOf(rule) })),
                  { value: '', label: 'None: keep it as a separate rule' },
                ]}
              />
            )}
            {denials && (
              <p>
                In the last hour it would have denied <strong>{exactNumber(denials.denied)}</strong> of{' '}
                {exactNumber(denials.checks)} checks.
              </p>
            )}
            <p>{into ? <Into live={into} shadow={shadow} /> : <AsItIs shadow={shadow} />}</p>
          </div>
        }
        verb="Enforce"
        action={enforce}
      />
    </>
  );
}

/** The unnamed rule comes first, because a candidate usually replaces it. */
export function liveRules(rules: Rule[], shadow: Rule, now: number): Rule[] {
  return rules
    .filter(
      (rule) =>
        rule.key_pattern === shadow.key_pattern &&
        rule.plan === shadow.plan &&
        rule.mode === 'enforce' &&
        rule.rule_id !== shadow.rule_id &&
        isOn(rule, now),
    )
    .toSorted((a, b) => a.name.localeCompare(b.name, 'en'));
}

function nameOf(rule: Rule): string {
  return [rule.name, ruleEffect(rule)].filter(Boolean).join(': ');
}

function Into({ live, shadow }: { live: Rule; shadow: Rule }) {
  return (
    <>
      The live rule goes from <s>{nameOf(live)}</s> to <strong>{nameOf({ ...shadow, name: live.name })}</strong>. It
      keeps its buckets and overrides, and this shadow rule is removed.
    </>
  );
}

function AsItIs({ shadow }: { shadow: Rule }) {
  return (
    <>
      This rule is enforced: <strong>{ruleEffect(shadow)}</strong>. Requests that it only reported are denied from then
      on.
    </>
  );
}
