import { Button, Group } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body, ifMatch, type Tagged } from '~/api/client';
import { isStatus, sentence } from '~/api/problem';
import { plansQuery, rulesQuery } from '~/api/queries';
import type { Rule, User } from '~/api/types';
import { userQuery } from '~/api/user';
import { ChoiceField } from '~/components/ChoiceField';
import { ConflictDialog } from '~/components/ConflictDialog';
import { Dialog } from '~/components/Dialog';
import { QuotaNote } from '~/components/QuotaNote';
import { done } from '~/components/toast';
import { ruleEffect, ruleTitle } from '~/domain/rule';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  user: Tagged<User>;
  onClose: () => void;
}

/** Assigns a plan to the user. An empty choice is the tenant’s default. */
export function ChangePlan({ tenant, user, onClose }: Props) {
  const { user_id, plan, plan_source } = user.value;
  const { data: plans = [], isPending: awaitsPlans, error: noPlans } = useQuery(plansQuery(tenant));
  const { data: rules = [], isPending: awaitsRules, error: noRules } = useQuery(rulesQuery(tenant));
  const [chosen, setChosen] = useState(plan_source === 'user' ? (plan ?? '') : '');
  const [theirs, setTheirs] = useState<Tagged<User> | null>(null);
  const queries = useQueryClient();
  const standard = plans.find(({ is_default }) => is_default)?.name;
  const becomes = chosen || standard;

  const save = useMutation({
    mutationFn: (etag: string) =>
      body(
        api.PUT('/api/v1/tenants/{tenant}/users/{user_id}/plan', {
          params: { path: { tenant, user_id }, header: ifMatch(etag) },
          body: { plan: chosen || null },
        }),
      ),
    onSuccess: async () => {
      await changed(queries, tenant, 'user');
      done(`User ${user_id} is on ${becomes ?? 'no plan'} now`);
      onClose();
    },
    onError: async (error) => {
      if (!isStatus(error, 412)) return;
      setTheirs(await queries.fetchQuery({ ...userQuery(tenant, user_id), staleTime: 0 }));
    },
  });

  // Without plans and rules the dialog would claim that no plan has limits.
  if (awaitsPlans || awaitsRules) return null;
  const title = `Change the plan of user ${user_id}`;
  const failure = noPlans ?? noRules;
  if (failure) {
    return (
      <Dialog onClose={onClose} title={title}>
        <p role="alert" style={{ color: 'var(--denied)' }}>
          {sentence(failure)}
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog onClose={onClose} title={title} pending={save.isPending}>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate(user.etag);
        }}
      >
        {plan_source !== 'user' && <QuotaNote tenant={tenant} thing="users" />}
        <ChoiceField
          label="Plan"
          value={chosen}
          data-autofocus
          data={[
            { value: '', label: `Tenant default${standard ? ` (${standard})` : ''}` },
            ...plans.map(({ name }) => name),
          ]}
          onChange={setChosen}
        />
        {becomes !== plan && <Effect rules={rules} from={plan} to={becomes ?? null} />}
        {save.isError && !isStatus(save.error, 412) && (
          <p role="alert" style={{ color: 'var(--denied)' }}>
            {sentence(save.error)}
          </p>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={save.isPending}>
            Change plan
          </Button>
        </Group>
      </form>
      {theirs && (
        <ConflictDialog
          opened
          what={`the plan of user ${user_id}`}
          versions={[{ label: 'Plan', mine: becomes ?? 'none', theirs: theirs.value.plan ?? 'none' }]}
          onKeepMine={() => {
            setTheirs(null);
            save.mutate(theirs.etag);
          }}
          onTakeTheirs={onClose}
          onClose={() => setTheirs(null)}
        />
      )}
    </Dialog>
  );
}

/** The limits that start and stop to apply. */
function Effect({ rules, from, to }: { rules: Rule[]; from: string | null; to: string | null }) {
  const of = (plan: string | null) =>
    rules.filter((rule) => rule.is_active && rule.plan !== null && rule.plan === plan);
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
