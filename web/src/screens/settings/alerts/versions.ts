import type { Alert, Rule } from '~/api/types';
import type { Versions } from '~/components/ConflictDialog';
import { exactNumber, plural } from '~/domain/format';
import { ruleLabel } from '~/domain/rule';

/** The fields of the form of an alert. */
export type AlertFields = Pick<
  Alert,
  'name' | 'rule_id' | 'per' | 'threshold' | 'window_minutes' | 'url' | 'is_active'
>;

export const countedAs = {
  rule: 'All denials of the rule',
  subject: 'Denials of each user or address',
} as const;

/** Mine and theirs, field by field. */
export function alertVersions(mine: AlertFields, theirs: AlertFields, rules: Rule[]): Versions[] {
  const ruleOf = ({ rule_id }: AlertFields) => {
    const rule = rules.find((one) => one.rule_id === rule_id);
    return rule ? ruleLabel(rule) : `rule ${rule_id}`;
  };
  const row = (label: string, text: (of: AlertFields) => string) => ({
    label,
    mine: text(mine),
    theirs: text(theirs),
  });
  return [
    row('Name', ({ name }) => name),
    row('Rule', ruleOf),
    row('Denials', ({ threshold }) => exactNumber(threshold)),
    row('Within', ({ window_minutes }) => plural(window_minutes, 'minute')),
    row('Count', ({ per }) => countedAs[per]),
    row('Webhook', ({ url }) => url),
    row('State', ({ is_active }) => (is_active ? 'on' : 'off')),
  ];
}
