import { NativeSelect, SegmentedControl } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { BurstInput } from '~/components/BurstInput';
import { Effect } from '~/components/Effect';
import { FormDialog } from '~/components/FormDialog';
import { RateInput } from '~/components/RateInput';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { plural, shortTime } from '~/domain/format';
import { type Group, groupNouns, hasExpired } from '~/domain/group';
import { limitProblems } from '~/domain/rate';
import { BypassNote } from './BypassNote';
import { bypassesOf } from './bypass';
import {
  type Action,
  beginDraft,
  changeOf,
  consequence,
  type Draft,
  endOf,
  groupName,
  lengths,
  savedRule,
  temporaryRule,
  verbs,
} from './draft';
import styles from './temporary.module.css';
import { useOpenRule } from './useOpenRule';

interface Props {
  tenant: string;
  group: Group;
  action: Action;
  /** How many of its checks were denied in the range that is shown. */
  denied?: number;
  onClose: () => void;
}

/** Blocks, limits or lets through a group until a time, by a rule that expires. */
export default function TemporaryRule({ tenant, group, action, denied, onClose }: Props) {
  const [draft, setDraft] = useState(() => beginDraft(action));
  const queries = useQueryClient();
  const open = useOpenRule(tenant);
  const rules = useQuery(rulesQuery(tenant));
  const saved = savedRule(rules.data ?? [], group);
  const now = useNow(1000); // a bypass that was ended a moment ago is gone at once
  const change = (part: Partial<Draft>) => setDraft((before) => ({ ...before, ...part }));
  const problems = limitProblems(draft.limit);
  const wrong = draft.action === 'limit' && Object.keys(problems).length > 0;
  const { by, value } = group;
  const allBypasses = useMemo(() => bypassesOf(rules.data ?? [], { by, value }), [rules.data, by, value]);
  // The saved rule is replaced, so it lets nothing through any more.
  const bypasses = allBypasses.filter(
    ({ rule }) => draft.action !== 'bypass' && rule.rule_id !== saved?.rule_id && !hasExpired(rule, now),
  );
  const length = lengths.find(({ value }) => value === draft.minutes)?.label;

  async function save() {
    const rule = await put(tenant, group, draft, saved);
    await changed(queries, tenant, 'rule');
    const end = shortTime(Date.parse(rule.expires_at ?? ''));
    done(
      `${{ block: 'Blocked', limit: 'Limited', bypass: 'Let through' }[draft.action]} until ${end}. All checks follow within 2 s`,
      { label: 'Open the rule', run: () => open(rule.rule_id) },
    );
  }

  return (
    <FormDialog
      title={`${verbs[draft.action]} ${groupName(group)}`}
      verb={`${verbs[draft.action]} for ${length}`}
      destructive={draft.action === 'block'}
      disabled={wrong || rules.isPending}
      onClose={onClose}
      save={save}
    >
      {(field) => (
        <>
          <SegmentedControl
            fullWidth
            aria-label="Action"
            data={(['block', 'limit', 'bypass'] as const).map((value) => ({ value, label: verbs[value] }))}
            value={draft.action}
            onChange={(value) => change({ action: value as Action })}
          />
          <NativeSelect
            label="Duration"
            description={`Ends ${shortTime(endOf(draft, now))}, by itself.`}
            value={draft.minutes}
            data={lengths}
            error={field('/expires_in_seconds')}
            onChange={(event) => change({ minutes: event.currentTarget.value })}
          />
          {draft.action === 'limit' && (
            <div className={styles.limit}>
              <RateInput
                label="Rate"
                value={draft.limit}
                error={problems.rate ?? field('/rate_per_second')}
                onChange={(rate) => change({ limit: { ...draft.limit, ...rate } })}
              />
              <BurstInput
                label="Burst"
                value={draft.limit.burst_capacity}
                error={problems.burst ?? field('/burst_capacity')}
                onChange={(burst_capacity) => change({ limit: { ...draft.limit, burst_capacity } })}
              />
            </div>
          )}
          <div className={styles.effect}>
            {bypasses.every(({ partly }) => partly) && <p>{consequence(draft, group)}</p>}
            {bypasses.length > 0 && <BypassNote tenant={tenant} group={group} bypasses={bypasses} />}
            {denied !== undefined && (
              <p>
                In the time that is shown, {plural(denied, 'check')} of this {groupNouns[group.by]} were
                denied.
              </p>
            )}
            {!wrong && <Effect tenant={tenant} question={{ rules: [question(group, draft)] }} />}
            {saved && !hasExpired(saved, now) && saved.expires_at && (
              <p>It replaces the rule that holds until {shortTime(Date.parse(saved.expires_at))}.</p>
            )}
          </div>
        </>
      )}
    </FormDialog>
  );
}

/** The rule without its end: the past that the effect is about has no such end. */
function question(group: Group, draft: Draft) {
  const { expires_in_seconds: _, ...rule } = temporaryRule(group, draft);
  return rule;
}

async function put(tenant: string, group: Group, draft: Draft, saved: Rule | undefined): Promise<Rule> {
  if (!saved) {
    return body(
      api.POST('/api/v1/tenants/{tenant}/rules', {
        params: { path: { tenant } },
        body: temporaryRule(group, draft),
      }),
    );
  }
  return body(
    api.PATCH('/api/v1/tenants/{tenant}/rules/{rule_id}', {
      params: { path: { tenant, rule_id: saved.rule_id }, header: ifMatch(etagOf(saved)) },
      body: changeOf(draft),
    }),
  );
}
