import { useState } from 'react';
import type { Override, Rule } from '~/api/types';
import { ChoiceField } from '~/components/ChoiceField';
import { Dialog } from '~/components/Dialog';
import { ruleLabel } from '~/domain/rule';
import type { Subject } from './draft';
import { OverrideEditor } from './OverrideEditor';
import { applies } from './overridable';

interface Props {
  tenant: string;
  /** Left out, the dialog asks for the user. */
  user?: Subject;
  /** The rules to choose from; not empty. */
  rules: Rule[];
  /** The rule to begin with, by its id. */
  rule?: number;
  /** The overrides that are saved, as far as they are loaded. */
  saved: Override[];
  onClose: () => void;
}

/** Creates or edits the override of one rule for one user. */
export function OverrideDialog({ tenant, user, rules, rule: first, saved, onClose }: Props) {
  const [chosen, setChosen] = useState(first);
  const rule = rules.find(({ rule_id }) => rule_id === chosen) ?? (rules[0] as Rule);
  const over = saved.find(({ rule_id, user_id }) => rule_id === rule.rule_id && user_id === user?.user_id);
  const missing = chosen !== undefined && chosen !== rule.rule_id;
  const whom = user ? ` for user ${user.user_id}` : '';
  return (
    <Dialog onClose={onClose} size={520} title={`${over ? 'Edit' : 'New'} override${whom}`}>
      <ChoiceField
        label="Rule"
        value={String(rule.rule_id)}
        disabled={rules.length === 1}
        data={choicesOf(rules, user)}
        error={missing && `Rule ${chosen} cannot be overridden for one user. This is another rule.`}
        onChange={(value) => setChosen(Number(value))}
      />
      {/* Another rule begins another draft. */}
      <OverrideEditor
        key={rule.rule_id}
        tenant={tenant}
        user={user}
        rule={rule}
        saved={over}
        onClose={onClose}
      />
    </Dialog>
  );
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
