import { Button, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Override, Rule, User } from '~/api/types';
import { userQuery } from '~/api/user';
import { ChoiceField } from '~/components/ChoiceField';
import { Dialog } from '~/components/Dialog';
import { ruleLabel } from '~/domain/rule';
import type { Subject } from './draft';
import { OverrideEditor } from './OverrideEditor';
import { applies, denyingRule } from './overridable';

interface Props {
  tenant: string;
  /** Left out, the dialog asks for the user. */
  user?: Subject;
  /** The rules to choose from; not empty. */
  rules: Rule[];
  /** The rule to begin with, by its id; left out, the one that denies the user. */
  rule?: number;
  /** The overrides that are saved, as far as they are loaded. */
  saved: Override[];
  onClose: () => void;
}

/** Creates or edits the override of one rule for one user. */
export function OverrideDialog({ tenant, user: given, rules, rule: first, saved, onClose }: Props) {
  const [chosen, setChosen] = useState(first);
  const [typed, setTyped] = useState('');
  const user: Subject = given ?? { user_id: typed.trim() };
  const denials = useDenials(tenant, given || rules.length === 1 ? '' : user.user_id);
  const denying = denials && denyingRule(rules, denials);
  const wanted = chosen ?? denying;
  const rule = rules.find(({ rule_id }) => rule_id === wanted) ?? (rules[0] as Rule);
  const over = saved.find(({ rule_id, user_id }) => rule_id === rule.rule_id && user_id === user.user_id);
  const offered = rules.find(({ rule_id }) => rule_id === denying && rule_id !== rule.rule_id);
  const missing = chosen !== undefined && chosen !== rule.rule_id;
  const whom = given ? ` for user ${given.user_id}` : '';
  return (
    <Dialog onClose={onClose} size={520} title={`${over ? 'Edit' : 'New'} override${whom}`}>
      {!given && (
        <TextInput
          label="User"
          mb={16}
          required
          withAsterisk={false}
          data-autofocus
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
      )}
      <ChoiceField
        label="Rule"
        description={denying === rule.rule_id ? 'The rule that denies this user most' : undefined}
        value={String(rule.rule_id)}
        disabled={rules.length === 1}
        data={choicesOf(rules, given)}
        error={missing && `Rule ${chosen} cannot be overridden for one user. This is another rule.`}
        onChange={(value) => setChosen(Number(value))}
      />
      {offered && (
        <p role="status" className="soft">
          {ruleLabel(offered)} denies this user most.{' '}
          <Button variant="subtle" size="compact-sm" onClick={() => setChosen(offered.rule_id)}>
            Use this rule
          </Button>
        </p>
      )}
      {/* Another rule begins another draft, so the rule stays once the draft is begun. */}
      <OverrideEditor
        key={rule.rule_id}
        tenant={tenant}
        user={user}
        named={given !== undefined}
        rule={rule}
        saved={over}
        onBegin={() => setChosen((before) => before ?? rule.rule_id)}
        onClose={onClose}
      />
    </Dialog>
  );
}

/** What denied a user lately, once the id is typed. */
function useDenials(tenant: string, id: string): User | undefined {
  const [asked] = useDebouncedValue(id, 300);
  const { data } = useQuery({ ...userQuery(tenant, asked), enabled: asked !== '', refetchInterval: false });
  return asked === id ? data?.value : undefined;
}

/** The rules as choices; those that apply to the user's plan, where it is known, come first. */
function choicesOf(rules: Rule[], user: Subject | undefined) {
  const items = (some: Rule[]) =>
    some.map((rule) => ({ value: String(rule.rule_id), label: ruleLabel(rule) }));
  const { plan } = user ?? {};
  if (plan === undefined) return items(rules);
  return [
    {
      group: plan === null ? 'No plan' : `Plan ${plan}`,
      items: items(rules.filter((one) => applies(one, plan))),
    },
    { group: 'Other plans', items: items(rules.filter((one) => !applies(one, plan))) },
  ].filter((group) => group.items.length > 0);
}
