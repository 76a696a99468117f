import { ActionIcon, Menu } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, type Tagged } from '~/api/client';
import { lastHourQuery, ruleQuery, type Verdicts } from '~/api/queries';
import type { Rule, RulePatch } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ConfirmAction } from '~/components/ConfirmAction';
import {
  IconClock,
  IconCopy,
  IconDots,
  IconGhost,
  IconHistory,
  IconPause,
  IconPencil,
  IconPlay,
  IconTrash,
} from '~/components/icons';
import { Act } from '~/components/MoreMenu';
import { done } from '~/components/toast';
import { exactNumber } from '~/domain/format';
import { limitSentence } from '~/domain/rate';
import { isReplayable } from '~/features/replay/useLimitDraft';
import { ChangeList } from './ChangeList';
import styles from './Rules.module.css';
import { differences } from './ruleDraft';

type Change = 'shadow' | 'off' | 'on' | 'remove';

interface Props {
  tenant: string;
  saved: Tagged<Rule>;
  /** Something typed is not saved: what would change the rule below it waits. */
  dirty: boolean;
  onTry: (() => void) | undefined;
  onSchedule: (() => void) | undefined;
}

export function RuleActions({ tenant, saved: { value: rule, etag }, dirty, onTry, onSchedule }: Props) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  // The rule as it was when the question was asked: it may be changed before the answer.
  const [asked, setAsked] = useState<{ act: Change; seen: Rule } | null>(null);
  const { data: lastHour } = useQuery({ ...lastHourQuery(tenant), enabled: asked !== null });
  const params = { tenant, rule_id: rule.rule_id, etag };

  async function change(patch: RulePatch, said: string) {
    const saved = await api.patch('/api/v1/tenants/{tenant}/rules/{rule_id}', { ...params, body: patch });
    await changed(queries, tenant, 'rule');
    done(`${said} within 2 s`, undoOf(tenant, saved));
  }

  async function remove() {
    const removed = await api.delete('/api/v1/tenants/{tenant}/rules/{rule_id}', params);
    await navigate({ to: '/t/$tenant/rules', params: { tenant }, ignoreBlocker: true });
    queries.removeQueries({ queryKey: ruleQuery(tenant, rule.rule_id).queryKey });
    await changed(queries, tenant, 'rule');
    done('Rule removed', undoOf(tenant, removed));
  }

  const acts: Record<Change, { title: string; verb: string; action: () => Promise<void> }> = {
    shadow: {
      title: 'Stop enforcing this rule?',
      verb: 'Stop enforcing',
      action: () => change({ mode: 'shadow' }, 'In shadow mode'),
    },
    off: {
      title: 'Turn this rule off?',
      verb: 'Turn off',
      action: () => change({ is_active: false }, 'Off'),
    },
    on: { title: 'Turn this rule on?', verb: 'Turn on', action: () => change({ is_active: true }, 'On') },
    remove: { title: 'Remove this rule?', verb: 'Remove rule', action: remove },
  };
  const asking = acts[asked?.act ?? 'remove'];
  const ask = (act: Change) => setAsked({ act, seen: rule });
  const copy = () => navigate({ to: '/t/$tenant/rules/new', params: { tenant }, search: { from: rule.rule_id } });
  const replay = () =>
    navigate({ to: '/t/$tenant/replays', params: { tenant }, search: { open: 'new', rule: rule.rule_id } });
  const live = rule.mode === 'enforce' && rule.action !== 'bypass';

  return (
    <>
      <Menu position="bottom-end" returnFocus={false}>
        <Menu.Target>
          <ActionIcon size={32} variant="default" aria-label="More">
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Act icon={IconPencil} onClick={edit}>
            Edit
          </Act>
          <Act icon={IconCopy} onClick={copy}>
            Duplicate
          </Act>
          {onTry && (
            <Act icon={IconGhost} onClick={onTry}>
              Try as shadow
            </Act>
          )}
          {onSchedule && (
            <Act icon={IconClock} onClick={onSchedule}>
              Schedule a change
            </Act>
          )}
          {isReplayable(rule) && (
            <Act icon={IconHistory} onClick={replay}>
              Replay another limit
            </Act>
          )}
          <Menu.Divider />
          {live && rule.is_active && (
            <Act icon={IconGhost} disabled={dirty} onClick={() => ask('shadow')}>
              Stop enforcing (shadow mode)
            </Act>
          )}
          <Act
            icon={rule.is_active ? IconPause : IconPlay}
            disabled={dirty}
            onClick={() => ask(rule.is_active ? 'off' : 'on')}
          >
            {rule.is_active ? 'Turn off' : 'Turn on'}
          </Act>
          <Act icon={IconTrash} onClick={() => ask('remove')}>
            Remove rule
          </Act>
        </Menu.Dropdown>
      </Menu>
      <ConfirmAction
        opened={asked !== null}
        onClose={() => setAsked(null)}
        title={asking.title}
        effect={
          asked && (
            <div className={styles.form}>
              <p>{effectOf(asked.act, rule, lastHour?.get(rule.rule_id))}</p>
              <Since seen={asked.seen} now={rule} />
            </div>
          )
        }
        verb={asking.verb}
        destructive={asked?.act !== 'on'}
        action={asking.action}
      />
    </>
  );
}

function edit() {
  requestAnimationFrame(() => document.querySelector<HTMLElement>('#rule-form input')?.focus());
}

function Since({ seen, now }: { seen: Rule; now: Rule }) {
  const changes = differences(seen, now);
  return changes.length > 0 && <ChangeList of={changes} lead="Changed since you opened this:" />;
}

function effectOf(act: Change, rule: Rule, denials: Verdicts | undefined): string {
  const denied = rule.mode === 'shadow' ? 'would have denied' : 'denied';
  const hour = denials
    ? ` In the last hour it ${denied} ${exactNumber(denials.denied)} of ${exactNumber(denials.checks)} checks.`
    : '';
  const limit = rule.action === 'limit' ? `the limit of ${limitSentence(rule)}` : 'the rule';
  switch (act) {
    case 'shadow':
      return `Within 2 s ${limit} denies nothing and only reports what it would deny.${hour}`;
    case 'off':
      return `Within 2 s no check uses ${limit}. Its overrides stay.${hour}`;
    case 'on':
      return rule.mode === 'shadow'
        ? 'The rule reports again what it would deny.'
        : `Within 2 s ${limit} is enforced again.`;
    case 'remove':
      return `Within 2 s ${limit}, its overrides and its candidate are removed.${hour} The audit log can undo this.`;
  }
}
