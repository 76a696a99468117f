import type { Alert, NewAlert, Rule } from '~/api/types';
import type { Versions } from '~/components/ConflictDialog';
import { plural } from '~/domain/format';
import { ruleLabel } from '~/domain/rule';
import { countedText, kindNames } from './words';

/** The fields of the form of an alert. */
export type AlertFields = NewAlert;

export const formatNames = {
  webhook: 'Webhook',
  slack: 'Slack',
  pagerduty: 'PagerDuty',
  email: 'E-mail',
} as const satisfies Record<Alert['format'], string>;

/** "Webhook https://hooks.example.com/sluice", "E-mail ada@example.com", "PagerDuty" */
export function destinationOf({ format = 'webhook', url, email }: Partial<Alert>): string {
  if (format === 'pagerduty') return formatNames.pagerduty;
  return `${formatNames[format]} ${(format === 'email' ? email : url) ?? ''}`;
}

export const countedAs = {
  rule: 'All of the rule together',
  subject: 'Each user or address by itself',
} as const;

/** Mine and theirs, field by field. */
export function alertVersions(mine: AlertFields, theirs: Alert, rules: Rule[]): Versions[] {
  const ruleOf = ({ rule_id }: AlertFields | Alert) => {
    if (rule_id === null) return 'any rule';
    const rule = rules.find((one) => one.rule_id === rule_id);
    return rule ? ruleLabel(rule) : `rule ${rule_id}`;
  };
  const row = (label: string, text: (of: AlertFields | Alert) => string) => ({
    label,
    mine: text(mine),
    theirs: text(theirs),
  });
  return [
    row('Name', ({ name }) => name),
    row('When', ({ kind = 'denials' }) => kindNames[kind]),
    row('Rule', ruleOf),
    row('Threshold', ({ kind = 'denials', threshold }) => countedText(kind, threshold)),
    row('Within', ({ window_minutes }) => plural(window_minutes, 'minute')),
    row('Count', ({ per }) => countedAs[per]),
    row('Send to', destinationOf),
    row('State', ({ is_active }) => (is_active ? 'on' : 'off')),
  ];
}
