import { useQuery, useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, type Tagged, tagged } from '~/api/client';
import { serverNow } from '~/api/clock';
import { plansQuery, rulesQuery } from '~/api/queries';
import type { Rule, User } from '~/api/types';
import { undoOf } from '~/api/undo';
import { userQuery } from '~/api/user';
import { CapacityNote } from '~/components/CapacityNote';
import { ChoiceField } from '~/components/ChoiceField';
import { Dialog } from '~/components/Dialog';
import { FormDialog } from '~/components/FormDialog';
import { ErrorState } from '~/components/states';
import { done } from '~/components/toast';
import { useSave } from '~/components/useSave';
import { isOn } from '~/domain/group';
import { ruleEffect, ruleTitle } from '~/domain/rule';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  user: Tagged<User>;
  onClose: () => void;
}

export function ChangePlan({ tenant, user, onClose }: Props) {
  const { user_id, plan, plan_source, sent_plan } = user.value;
  const plansOf = useQuery(plansQuery(tenant));
  const rulesOf = useQuery(rulesQuery(tenant));
  const queries = useQueryClient();
  const plans = plansOf.data ?? [];
  const standard = plans.find(({ is_default }) => is_default)?.name;
  const path = { tenant, user_id };
  const editor = useSave<User, { plan: string }>({
    what: `the plan of user ${user_id}`,
    saved: user,
    draftOf: ({ plan, plan_source }) => ({ plan: plan_source === 'user' ? (plan ?? '') : '' }),
    send: (draft, { etag }) =>
      tagged(
        api.put('/api/v1/tenants/{tenant}/users/{user_id}/plan', { ...path, etag, body: { plan: draft.plan || null } }),
      ),
    read: () => queries.fetchQuery({ ...userQuery(tenant, user_id), staleTime: 0 }),
    say: (_, draft) => ['Plan', draft.plan || (standard ?? 'none')],
    onSaved: async ({ value }) => {
      await changed(queries, tenant, 'user');
      done(`User ${user_id} is on ${becomes ?? 'no plan'} now`, undoOf(tenant, value));
    },
  });
  const becomes = editor.draft.plan || standard;

  // Without plans and rules the dialog would claim that no plan has limits.
  if (plansOf.isPending || rulesOf.isPending) return null;
  const title = `Change the plan of user ${user_id}`;
  const failed = [plansOf, rulesOf].find(({ error }) => error);
  if (failed) {
    return (
      <Dialog onClose={onClose} title={title}>
        <ErrorState error={failed.error} onRetry={() => failed.refetch()} />
      </Dialog>
    );
  }
  return (
    <FormDialog onClose={onClose} title={title} verb="Change plan" save={editor.save} beside={editor.conflict}>
      {plan_source !== 'user' && <CapacityNote tenant={tenant} thing="users" />}
      <ChoiceField
        label="Plan"
        data-autofocus
        data={[
          { value: '', label: `Tenant default${standard ? ` (${standard})` : ''}` },
          ...plans.map(({ name }) => name),
        ]}
        {...editor.field('plan')}
      />
      {sent_plan !== null && (
        <p role="status">The service sends the plan {sent_plan}. This one is for checks that name none.</p>
      )}
      {becomes !== plan && <Effect rules={rulesOf.data ?? []} from={plan} to={becomes ?? null} />}
    </FormDialog>
  );
}

function Effect({ rules, from, to }: { rules: Rule[]; from: string | null; to: string | null }) {
  const of = (plan: string | null) =>
    rules.filter((rule) => isOn(rule, serverNow()) && rule.plan !== null && rule.plan === plan);
  const [begin, end] = [of(to), of(from)];
  return (
    <div className={styles.effect}>
      <p>These limits apply within 2 s. Limits for all plans stay.</p>
      <ul>
        {begin.map((rule) => (
          <li key={rule.rule_id}>
            {ruleTitle(rule)}: {effectOf(rule)}
          </li>
        ))}
        {begin.length === 0 && <li>{to ? `The plan ${to}` : 'No plan'} has no rules.</li>}
        {end.map((rule) => (
          <li key={rule.rule_id} className="soft">
            <del>
              {ruleTitle(rule)}: {effectOf(rule)}
            </del>
          </li>
        ))}
      </ul>
    </div>
  );
}

function effectOf(rule: Rule): string {
  return rule.mode === 'shadow' ? `${ruleEffect(rule)} (shadow)` : ruleEffect(rule);
}
