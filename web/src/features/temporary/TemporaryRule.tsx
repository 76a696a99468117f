import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useMemo } from 'react';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import { isStatus } from '~/api/problem';
import { rulesQuery } from '~/api/queries';
import { presentQuery, presentRate } from '~/api/traffic';
import type { Rule } from '~/api/types';
import { Effect } from '~/components/Effect';
import { RuleLink } from '~/components/RuleLink';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { noLimit } from '~/domain/algorithm';
import { plural, shortTime } from '~/domain/format';
import { type Group, groupNouns, hasExpired } from '~/domain/group';
import { BypassNote } from './BypassNote';
import {
  type Action,
  changeOf,
  consequence,
  type Draft,
  groupName,
  limitToBegin,
  participles,
  savedRule,
  temporaryRule,
  verbs,
} from './draft';
import { ForATime } from './ForATime';
import { matching, opened } from './matching';
import styles from './temporary.module.css';
import { useOpenRule } from './useOpenRule';

interface Props {
  tenant: string;
  group: Group;
  action: Action;
  denied?: number;
  onClose: () => void;
}

const shown = 5;

export default function TemporaryRule({ tenant, group, action, denied, onClose }: Props) {
  const queries = useQueryClient();
  const open = useOpenRule(tenant);
  const rules = useQuery(rulesQuery(tenant));
  const saved = savedRule(rules.data ?? [], group);
  const now = useNow(1000); // a bypass that was ended a moment ago is gone at once
  const { by, value } = group;
  // The saved rule is replaced, so it lets nothing through any more.
  const stays = (rule: Rule) => rule.rule_id !== saved?.rule_id && !hasExpired(rule, now);
  const allBypasses = useMemo(() => matching(rules.data ?? [], { by, value }, 'bypass'), [rules.data, by, value]);
  const opens = useMemo(() => opened(rules.data ?? [], { by, value }), [rules.data, by, value]).filter(stays);
  const bypassesOf = ({ action }: Draft) => allBypasses.filter(({ rule }) => action !== 'bypass' && stays(rule));
  const holds = saved?.is_active && saved.expires_at && !hasExpired(saved, now) ? saved : undefined;

  async function save(draft: Draft) {
    const rule = await put(tenant, group, draft, saved).catch(async (error) => {
      if (!isStatus(error, 409) && !isStatus(error, 412)) throw error;
      // The dialog then names the other person's rule, and a second press replaces it.
      const { data = [] } = await rules.refetch();
      const theirs = savedRule(data, group);
      if (!theirs) throw error;
      throw new Error(`Somebody else changed this ${groupNouns[by]} meanwhile. Press again to replace what they did.`);
    });
    await changed(queries, tenant, 'rule');
    const end = shortTime(Date.parse(rule.expires_at ?? ''));
    done(
      `${{ block: 'Blocked', limit: 'Limited', bypass: 'Let through' }[draft.action]} until ${end}. All ` +
        'checks follow within 2 s',
      { label: 'Open the rule', run: () => open(rule.rule_id) },
    );
  }

  return (
    <ForATime
      of={` ${groupName(group)}`}
      actions={['block', 'limit', 'bypass']}
      verbs={verbs}
      begin={{ action, limit: limitToBegin }}
      pointers={{ end: '/expires_in_seconds', limit: '' }}
      disabled={() => rules.isPending}
      onClose={onClose}
      save={save}
    >
      {(draft, isValid) => {
        const bypasses = bypassesOf(draft);
        return (
          <>
            {holds && (
              <p>
                This {groupNouns[by]} is {participles[holds.action]} already, until{' '}
                {shortTime(Date.parse(holds.expires_at ?? ''))}, by rule{' '}
                <RuleLink tenant={tenant} id={holds.rule_id} rule={holds} />. Saving replaces that.
              </p>
            )}
            {bypasses.every(({ partly }) => partly) && <p>{consequence(draft, group)}</p>}
            {draft.action === 'bypass' && <Opened tenant={tenant} rules={opens} />}
            {bypasses.length > 0 && <BypassNote tenant={tenant} group={group} bypasses={bypasses} />}
            {denied !== undefined && (
              <p>
                In the time that is shown, {plural(denied, 'check')} of this {groupNouns[group.by]} were denied.
              </p>
            )}
            <Recent tenant={tenant} group={group} />
            {isValid && <Effect tenant={tenant} question={{ rules: [question(group, draft)] }} />}
          </>
        );
      }}
    </ForATime>
  );
}

function Opened({ tenant, rules }: { tenant: string; rules: Rule[] }) {
  if (rules.length === 0) return null;
  return (
    <div className={styles.bypasses}>
      <p>
        <strong>This also opens what is always denied:</strong>
      </p>
      <ul className={styles.opened} aria-label="Opened block rules">
        {rules.slice(0, shown).map((rule) => (
          <li key={rule.rule_id}>
            <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
          </li>
        ))}
      </ul>
      {rules.length > shown && <p className="soft">And {rules.length - shown} more.</p>}
    </div>
  );
}

function Recent({ tenant, group: { by, value } }: { tenant: string; group: Group }) {
  const { data } = useQuery(presentQuery(tenant, by));
  if (!data) return null;
  const denied = presentRate(data, value);
  return <p>Now: {denied ? `${denied} of this ${groupNouns[by]} are denied` : 'no denials'} (last 10 seconds).</p>;
}

/** The effect is about the past, where the rule has no end. */
function question(group: Group, draft: Draft) {
  const { expires_in_seconds: _, ...rule } = temporaryRule(group, draft);
  return rule;
}

async function put(tenant: string, group: Group, draft: Draft, saved: Rule | undefined): Promise<Rule> {
  if (!saved) {
    return api.post('/api/v1/tenants/{tenant}/rules', { tenant, body: temporaryRule(group, draft) });
  }
  return api.patch('/api/v1/tenants/{tenant}/rules/{rule_id}', {
    tenant,
    rule_id: saved.rule_id,
    etag: etagOf(saved),
    body: { ...noLimit, ...changeOf(draft) },
  });
}
