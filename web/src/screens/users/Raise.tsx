import { NativeSelect } from '@mantine/core';
import { useState } from 'react';
import type { Rule, User } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { ruleLabel } from '~/domain/rule';
import { OverrideEditor } from '~/screens/rules/OverrideEditor';
import { applies } from './raisable';

interface Props {
  tenant: string;
  user: User;
  /** The rules that the user can have an override of; not empty. */
  rules: Rule[];
  /** The one to begin with. */
  rule?: number;
  onClose: () => void;
}

/** An override of one rule for one user: the rule that was asked for, or another that is chosen. */
export function Raise({ tenant, user, rules, rule: first, onClose }: Props) {
  const [chosen, setChosen] = useState(first);
  const rule = rules.find(({ rule_id }) => rule_id === chosen) ?? (rules[0] as Rule);
  const saved = user.overrides.find(({ rule_id }) => rule_id === rule.rule_id);
  const missing = chosen !== undefined && chosen !== rule.rule_id;
  const on = user.plan === null ? 'no plan' : `the plan ${user.plan}`;
  const choices = (holds: boolean) =>
    rules
      .filter((one) => applies(one, user) === holds)
      .map((one) => ({ value: String(one.rule_id), label: ruleLabel(one) }));
  const groups = [
    { group: `On ${on}`, items: choices(true) },
    { group: 'Other plans', items: choices(false) },
  ].filter(({ items }) => items.length > 0);
  return (
    <Dialog onClose={onClose} size={520} title={`Override a limit of user ${user.user_id}`}>
      <NativeSelect
        label="Rule"
        value={String(rule.rule_id)}
        data={groups}
        error={missing && `Rule ${chosen} cannot be overridden for one user. This is another rule.`}
        onChange={(event) => setChosen(Number(event.currentTarget.value))}
      />
      {/* Another rule begins another draft. */}
      <OverrideEditor
        key={rule.rule_id}
        tenant={tenant}
        user={user}
        rule={rule}
        saved={saved}
        onClose={onClose}
      />
    </Dialog>
  );
}
