import { Button, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Override, Rule, User } from '~/api/types';
import { planOfChecks, userQuery } from '~/api/user';
import { ChoiceField } from '~/components/ChoiceField';
import { ruleLabel } from '~/domain/rule';
import type { Subject } from './draft';
import { OverrideEditor } from './OverrideEditor';
import { applies, denyingRule } from './overridable';

interface Props {
  tenant: string;
  user?: Subject;
  rules: Rule[];
  /** Left out, it is the rule that denies the user. */
  rule?: string;
  saved: Override[];
  onClose: () => void;
}

export function OverrideDialog({ tenant, user: given, rules, rule: first, saved, onClose }: Props) {
  const [chosen, setChosen] = useState(first);
  const [typed, setTyped] = useState('');
  const known = useUser(tenant, given || rules.length === 1 ? '' : typed.trim());
  const user: Subject = given ?? { user_id: typed.trim(), plan: known && planOfChecks(known) };
  const denying = known && denyingRule(rules, known);
  const wanted = chosen ?? denying;
  const rule = rules.find(({ rule_id }) => rule_id === wanted) ?? firstFor(rules, user);
  const over = saved.find(({ rule_id, user_id }) => rule_id === rule.rule_id && user_id === user.user_id);
  const offered = rules.find(({ rule_id }) => rule_id === denying && rule_id !== rule.rule_id);
  const missing = chosen !== undefined && chosen !== rule.rule_id;
  return (
    <OverrideEditor
      tenant={tenant}
      user={user}
      named={given !== undefined}
      rule={rule}
      saved={over}
      onBegin={() => setChosen((before) => before ?? rule.rule_id)}
      onClose={onClose}
    >
      {!given && (
        <TextInput
          label="User"
          required
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
        data={choicesOf(rules, user)}
        error={missing && `Rule ${chosen} cannot be overridden for one user. This is another rule.`}
        onChange={(value) => setChosen(value ?? undefined)}
      />
      {offered && (
        <p role="status" className="soft">
          {ruleLabel(offered)} denies this user most.{' '}
          <Button variant="subtle" size="compact-sm" onClick={() => setChosen(offered.rule_id)}>
            Use this rule
          </Button>
        </p>
      )}
    </OverrideEditor>
  );
}

function useUser(tenant: string, id: string): User | undefined {
  const [asked] = useDebouncedValue(id, 300);
  const { data } = useQuery({ ...userQuery(tenant, asked), enabled: asked !== '', refetchInterval: false });
  return asked === id ? data?.value : undefined;
}

function firstFor(rules: Rule[], { plan }: Subject): Rule {
  return rules.find((one) => plan !== undefined && applies(one, plan)) ?? (rules[0] as Rule);
}

/** Rules that apply to the user's plan come first. */
function choicesOf(rules: Rule[], { plan }: Subject) {
  const items = (some: Rule[]) => some.map((rule) => ({ value: String(rule.rule_id), label: ruleLabel(rule) }));
  if (plan === undefined) return items(rules);
  return [
    {
      group: plan === null ? 'No plan' : `Plan ${plan}`,
      items: items(rules.filter((one) => applies(one, plan))),
    },
    { group: 'Other plans', items: items(rules.filter((one) => !applies(one, plan))) },
  ].filter((group) => group.items.length > 0);
}
