import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { isStatus } from '~/api/problem';
import { ruleQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { Effect } from '~/components/Effect';
import { FormDialog } from '~/components/FormDialog';
import { RuleLink } from '~/components/RuleLink';
import { ErrorState } from '~/components/states';
import { useNow } from '~/components/Time';
import { done } from '~/components/toast';
import { plural, shortTime } from '~/domain/format';
import { newRuleOf } from '~/domain/newRule';
import { hasRate, limitProblems, sameLimit } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import { refusal } from '~/domain/scheduled';
import { lengths } from './draft';
import { ForATime } from './ForATime';
import { actionsOf, changeOfRule, limitToBegin, type RuleAction, ruleConsequence, ruleVerbs } from './ruleDraft';
import styles from './temporary.module.css';
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
  const actions = actionsOf(rule);
  const [chosen, setChosen] = useState(asked);
  const [minutes, setMinutes] = useState('60');
  const [limit, setLimit] = useState(() => limitToBegin(rule));
  const now = useNow();
  const action = actions.includes(chosen) ? chosen : actions[0];
  if (!action) {
    return (
      <Dialog title={ruleLabel(rule)} onClose={onClose}>
        <p>
          This rule denies nobody now. <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
        </p>
      </Dialog>
    );
  }
  const wrong = action === 'limit' && Object.keys(limitProblems(limit)).length > 0;
  const same = action === 'limit' && sameLimit(limit, rule);
  const change = changeOfRule(action, rule, limit);
  const length = lengths.find(({ value }) => value === minutes)?.label;

  async function save() {
    const made = await api
      .post('/api/v1/tenants/{tenant}/scheduled-changes', {
        tenant,
        body: {
          rules: [{ rule_id: rule.rule_id, version: rule.version, change }],
          ends_in_seconds: Number(minutes) * 60,
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
    <FormDialog
      title={`${ruleVerbs[action]}: ${ruleLabel(rule)}`}
      verb={`${ruleVerbs[action]} for ${length}`}
      destructive={action === 'block'}
      disabled={wrong || same}
      onClose={onClose}
      save={save}
    >
      {(field) => (
        <>
          <ForATime
            actions={actions}
            verbs={ruleVerbs}
            action={action}
            onAction={setChosen}
            minutes={minutes}
            onMinutes={setMinutes}
            limit={action === 'limit' ? limit : null}
            onLimit={setLimit}
            withRate={hasRate(rule.algorithm)}
            now={now}
            wrong={(name) => field(name === 'end' ? '/ends_in_seconds' : `/rules/0/change/${name}`)}
          />
          <div className={styles.effect}>
            <p>{ruleConsequence(action)}</p>
            <p>In the time that is shown, it denied {plural(denied, 'check')}.</p>
            {!wrong && !same && (
              <Effect tenant={tenant} question={{ rules: [newRuleOf({ ...rule, ...change } as Rule)] }} />
            )}
          </div>
        </>
      )}
    </FormDialog>
  );
}
