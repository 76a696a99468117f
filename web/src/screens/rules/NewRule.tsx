import { Button, TextInput } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { plansQuery, rulesQuery } from '~/api/queries';
import { ActionBar } from '~/components/ActionBar';
import { CapacityNote } from '~/components/CapacityNote';
import { ChoiceField } from '~/components/ChoiceField';
import { fieldErrors, Rest } from '~/components/FormDialog';
import { Leaving } from '~/components/Leaving';
import { LinkButton } from '~/components/LinkButton';
import { Card, Page } from '~/components/Page';
import { PatternBuilder } from '~/components/PatternBuilder';
import { Query } from '~/components/Query';
import { NoPermission } from '~/components/states';
import { done } from '~/components/toast';
import { parsePattern } from '~/domain/pattern';
import { isValid } from '~/domain/rate';
import { fieldLabels } from '~/domain/rule';
import { useRole, useTenant } from '~/session';
import { BucketPicture } from './BucketPicture';
import { inputsOf } from './LimitFields';
import { RuleFields } from './RuleFields';
import styles from './Rules.module.css';
import { copyOf, creation, newRule, type RuleDraft } from './ruleDraft';

export default function NewRule() {
  const tenant = useTenant();
  const { from } = useSearch({ from: '/shell/t/$tenant/rules/new' });
  const rules = useQuery({ ...rulesQuery(tenant), enabled: from !== undefined });
  if (from === undefined) return <Form begin={newRule} />;
  return (
    <Query query={rules}>
      {(all) => {
        const original = all.find(({ rule_id }) => rule_id === from);
        return <Form key={from} begin={original ? copyOf(original, all) : newRule} />;
      }}
    </Query>
  );
}

function Form({ begin }: { begin: RuleDraft }) {
  const tenant = useTenant();
  const { edit } = useRole();
  const { first } = useSearch({ from: '/shell/t/$tenant/rules/new' });
  const queries = useQueryClient();
  const navigate = useNavigate();
  const { data: plans = [] } = useQuery(plansQuery(tenant));
  const [draft, setDraft] = useState<RuleDraft>(begin);
  function change(part: Partial<RuleDraft>) {
    create.reset();
    setDraft((before) => ({ ...before, ...part }));
  }

  const create = useMutation({
    mutationFn: () => api.post('/api/v1/tenants/{tenant}/rules', { tenant, body: creation(draft) }),
    onSuccess: async (rule) => {
      await changed(queries, tenant, 'rule');
      done(
        rule.mode === 'shadow'
          ? 'Rule created. Within 2 s it reports what it would deny'
          : 'Rule created. It takes effect within 2 s',
      );
      if (first) navigate({ to: '/t/$tenant/overview', params: { tenant }, ignoreBlocker: true });
      else navigate({ to: '/t/$tenant/rules/$rule', params: { tenant, rule: rule.rule_id }, ignoreBlocker: true });
    },
  });

  if (!edit) return <NoPermission need="edit" />;
  const { wrong, rest } = fieldErrors(create.error);
  const input = inputsOf({ draft, onChange: change, problem: wrong });
  const ready = !parsePattern(draft.key_pattern).error && (draft.action !== 'limit' || isValid(draft));
  const back = first ? '/t/$tenant/overview' : '/t/$tenant/rules';
  const dirty = JSON.stringify(draft) !== JSON.stringify(begin);

  return (
    <Page
      title="New rule"
      above={
        <Link to={back} params={{ tenant }}>
          {first ? 'Get started' : 'Rules'}
        </Link>
      }
    >
      <CapacityNote tenant={tenant} thing="rules" />
      <div className={styles.columns}>
        <div className={styles.column}>
          <Card title="Requests">
            <div className={styles.form}>
              <PatternBuilder
                value={draft.key_pattern}
                error={wrong('/key_pattern')}
                onChange={(key_pattern) => change({ key_pattern })}
              />
              <div className={styles.pair}>
                <ChoiceField
                  label="Plan"
                  value={draft.plan ?? ''}
                  error={wrong('/plan')}
                  data={[{ value: '', label: 'all plans' }, ...plans.map(({ name }) => ({ value: name, label: name }))]}
                  onChange={(plan) => change({ plan: plan || null })}
                />
                <TextInput label="Name" placeholder="Optional" {...input('name')} />
              </div>
              {draft.action === 'limit' && (
                <TextInput
                  label={fieldLabels.meter}
                  description="requests, or a name from the costs of your checks, such as input_tokens or usd"
                  {...input('meter')}
                  onChange={(event) => change({ meter: event.currentTarget.value.trim() })}
                />
              )}
            </div>
          </Card>
          <Card title="Action and limit">
            <RuleFields draft={draft} onChange={change} problem={wrong} />
          </Card>
        </div>
        <div className={`${styles.column} ${styles.inSight}`}>
          {draft.action === 'limit' && <BucketPicture limit={draft} />}
        </div>
      </div>
      <Rest rest={rest} />
      <ActionBar label="Create this rule">
        <LinkButton variant="default" to={back} params={{ tenant }}>
          Cancel
        </LinkButton>
        <Button disabled={!ready} loading={create.isPending} onClick={() => create.mutate()}>
          Create rule
        </Button>
      </ActionBar>
      <Leaving when={dirty} what="The new rule" />
    </Page>
  );
}
