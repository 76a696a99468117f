import { useQuery, useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { isStatus } from '~/api/problem';
import { ruleQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { Effect } from '~/components/Effect';
import { RuleLink } from '~/components/RuleLink';
import { ErrorState } from '~/components/states';
import { done } from '~/components/toast';
import { plural, shortTime } from '~/domain/format';
import { lengthOf } from '~/domain/lengths';
import { newRuleOf } from '~/domain/newRule';
import { sameLimit } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import { refusal } from '~/domain/scheduled';
import { type Draft, ForATime } from './ForATime';
import { actionsOf, changeOfRule, limitToBegin, type RuleAction, ruleConsequence, ruleVerbs } from './ruleDraft';
import { useOpenRule } from './useOpenRule';

interface Props {
  tenant: string;
  id: string;
  action: RuleAction;
  denied: number;
  onClose: () => void;
}

export default function RuleForATime({ tenant, id, action, denied, onClose }: Props) {
  const rule = useQuery(ruleQuery(tenant, id));
  if (rule.isPending) return null;
  if (!rule.data) {
    return (
      <Dialog title="Change for a time" onClose={onClose}>
        <ErrorState error={rule.error} onRetry={() => rule.refetch()} />
      </Dialog>
    );
  }
  return <Form tenant={tenant} rule={rule.data.value} asked={action} denied={denied} onClose={onClose} />;
}

interface FormProps {
  tenant: string;
  rule: Rule;
  asked: RuleAction;
  denied: number;
  onClose: () => void;
}

function Form({ tenant, rule, asked, denied, onClose }: FormProps) {
  const queries = useQueryClient();
  const open = useOpenRule(tenant);
  const [first, ...others] = actionsOf(rule);
  if (!first) {
    return (
      <Dialog title={ruleLabel(rule)} onClose={onClose}>
        <p>
          This rule denies nobody now. <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
        </p>
      </Dialog>
    );
  }
  const isSame = ({ action, limit }: Draft<RuleAction>) => action === 'limit' && sameLimit(limit, rule);

  async function save({ action, length, limit }: Draft<RuleAction>) {
    const made = await api
      .post('/api/v1/tenants/{tenant}/scheduled-changes', {
        tenant,
        body: {
          rules: [{ rule_id: rule.rule_id, version: rule.version, change: changeOfRule(action, rule, limit) }],
          ends_in_seconds: lengthOf(length).ms / 1000,
        },
      })
      .catch(async (error) => {
        if (!isStatus(error, 412)) throw refusal(error);
        // The dialog then shows the rule as it is now, and a second press changes that.
        await queries.refetchQueries(ruleQuery(tenant, rule.rule_id), { throwOnError: true });
        throw new Error('Somebody else changed this rule meanwhile. Press again to change it as it is now.');
      });
    await changed(queries, tenant, 'scheduled_change', 'rule');
    done(`Changed until ${shortTime(Date.parse(made.ends_at ?? ''))}. All checks follow within 2 s`, {
      label: 'Open the rule',
      run: () => open(rule.rule_id),
    });
  }

  return (
    <ForATime
      of={`: ${ruleLabel(rule)}`}
      actions={[first, ...others]}
      verbs={ruleVerbs}
      begin={{ action: asked, limit: limitToBegin(rule) }}
      pointers={{ end: '/ends_in_seconds', limit: '/rules/0/change' }}
      disabled={isSame}
      onClose={onClose}
      save={save}
    >
      {(draft, isValid) => (
        <>
          <p>{ruleConsequence[draft.action]}</p>
          <p>In the time that is shown, it denied {plural(denied, 'check')}.</p>
          {isValid && !isSame(draft) && <Effect tenant={tenant} question={{ rules: [replayed(rule, draft)] }} />}
        </>
      )}
    </ForATime>
  );
}

function replayed(rule: Rule, { action, limit }: Draft<RuleAction>) {
  return newRuleOf({ ...rule, ...changeOfRule(action, rule, limit) } as Rule);
}
