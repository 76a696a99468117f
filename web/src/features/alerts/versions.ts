import type { Alert, Rule } from '~/api/types';
import { plural } from '~/domain/format';
import { ruleLabel } from '~/domain/rule';
import { type AlertDraft, everyRule } from './draft';
import { countedText, kindNames } from './words';

export const formatNames = {
  webhook: 'Webhook',
  slack: 'Slack',
  pagerduty: 'PagerDuty',
  email: 'E-mail',
} as const satisfies Record<Alert['format'], string>;

function destinationOf({ format = 'webhook', url, email }: Partial<Alert>): string {
  if (format === 'pagerduty') return formatNames.pagerduty;
  return `${formatNames[format]} ${(format === 'email' ? email : url) ?? ''}`;
}

export const countedAs = {
  rule: 'All of the rule together',
  subject: 'Each user or address by itself',
} as const;

/** The server never sends a whole URL, so an empty one is the saved. */
export function sayField(
  field: keyof AlertDraft,
  draft: AlertDraft,
  rules: Rule[],
  saved: Alert | null,
): [string, string] {
  switch (field) {
    case 'name':
      return ['Name', draft.name];
    case 'kind':
      return ['When', kindNames[draft.kind]];
    case 'rule_id': {
      const rule = rules.find(({ rule_id }) => String(rule_id) === draft.rule_id);
      return ['Rule', rule ? ruleLabel(rule) : draft.rule_id === everyRule ? 'any rule' : `rule ${draft.rule_id}`];
    }
    case 'threshold':
      return ['Threshold', countedText(draft.kind, Number(draft.threshold))];
    case 'window_minutes':
      return ['Within', plural(Number(draft.window_minutes), 'minute')];
    case 'per':
      return ['Count', countedAs[draft.per]];
    case 'is_active':
      return ['State', draft.is_active ? 'on' : 'off'];
    default: {
      const url = draft.url || (saved?.format === draft.format ? saved.url : null);
      return ['Send to', destinationOf({ format: draft.format, email: draft.email, url })];
    }
  }
}
