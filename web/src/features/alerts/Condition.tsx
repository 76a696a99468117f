import { Group, NativeSelect, NumberInput, Select } from '@mantine/core';
import type { Rule } from '~/api/types';
import { choicesOf, ruleLabel } from '~/domain/rule';
import { type AlertDraft, allowedInFiveMinutes, everyRule, type Field, suggestedThreshold } from './draft';
import { countedAs } from './versions';
import { hasSubjects, type Kind, kindHints, kindNames } from './words';

interface Props {
  draft: AlertDraft;
  field: Field;
  change: (part: Partial<AlertDraft>) => void;
  rules: Rule[];
}

export function Condition({ draft, field, change, rules }: Props) {
  const { kind } = draft;
  const isShare = kind === 'near_limit';
  const ruleOf = (id: string | null) => rules.find(({ rule_id }) => String(rule_id) === id);
  const rule = ruleOf(draft.rule_id);
  const isSuggested = kind === 'denials' && Number(draft.threshold) === suggestedThreshold(rule);
  return (
    <>
      <NativeSelect
        label="When"
        description={kindHints[kind]}
        data={choicesOf(kindNames)}
        {...field('kind')}
        onChange={({ currentTarget: { value } }) => {
          const next = value as Kind;
          change({
            kind: next,
            ...(!hasSubjects(next) && { per: 'rule' }),
            ...(next === 'near_limit' ? { threshold: 50 } : isShare && { threshold: suggestedThreshold(rule) }),
          });
        }}
      />
      <Select
        label="Rule"
        placeholder="Choose a rule"
        searchable
        data={[
          { value: everyRule, label: kind === 'degraded' ? 'All checks' : 'Any rule' },
          ...rules.map((one) => ({ value: String(one.rule_id), label: ruleLabel(one) })),
        ]}
        {...field('rule_id')}
        onChange={(id) => {
          change({ rule_id: id, ...(isSuggested && { threshold: suggestedThreshold(ruleOf(id)) }) });
        }}
      />
      <Group grow gap={8} align="start">
        <NumberInput
          label={isShare ? 'Share' : kindNames[kind]}
          min={1}
          max={isShare ? 100 : undefined}
          suffix={isShare ? ' %' : undefined}
          allowDecimal={false}
          thousandSeparator=","
          description={
            isSuggested && Number(draft.threshold) === allowedInFiveMinutes(rule)
              ? 'As many as the rule allows one bucket in 5 minutes'
              : undefined
          }
          {...field('threshold')}
        />
        <NumberInput label="Within" suffix=" min" min={1} max={60} allowDecimal={false} {...field('window_minutes')} />
      </Group>
      {hasSubjects(kind) && <NativeSelect label="Count" data={choicesOf(countedAs)} {...field('per')} />}
    </>
  );
}
