import { Group, NativeSelect, NumberInput, Select } from '@mantine/core';
import type { UseFormReturnType } from '@mantine/form';
import type { Rule } from '~/api/types';
import { ruleLabel } from '~/domain/rule';
import { type AlertDraft, allowedInFiveMinutes, everyRule, suggestedThreshold } from './draft';
import { countedAs } from './versions';
import { hasSubjects, type Kind, kindHints, kindNames } from './words';

interface Props {
  form: UseFormReturnType<AlertDraft>;
  rules: Rule[];
  /** What is wrong with the fields. */
  errors: Partial<Record<'kind' | 'rule_id' | 'threshold' | 'window_minutes' | 'per', string>>;
}

/** When an alert fires: what it counts, of which rule, and how much of it. */
export function Condition({ form, rules, errors }: Props) {
  const { values, getInputProps, setFieldValue } = form;
  const { kind } = values;
  const isShare = kind === 'near_limit';
  const ruleOf = (id: string | null) => rules.find(({ rule_id }) => String(rule_id) === id);
  const rule = ruleOf(values.rule_id);
  const isSuggested = kind === 'denials' && Number(values.threshold) === suggestedThreshold(rule);
  return (
    <>
      <NativeSelect
        label="When"
        description={kindHints[kind]}
        data={Object.entries(kindNames).map(([value, label]) => ({ value, label }))}
        {...getInputProps('kind')}
        onChange={({ currentTarget: { value } }) => {
          const next = value as Kind;
          setFieldValue('kind', next);
          if (!hasSubjects(next)) setFieldValue('per', 'rule');
          if (next === 'near_limit') setFieldValue('threshold', 50);
          else if (isShare) setFieldValue('threshold', suggestedThreshold(rule));
        }}
        error={errors.kind}
      />
      <Select
        label="Rule"
        placeholder="Choose a rule"
        searchable
        data={[
          { value: everyRule, label: kind === 'degraded' ? 'All checks' : 'Any rule' },
          ...rules.map((one) => ({ value: String(one.rule_id), label: ruleLabel(one) })),
        ]}
        {...getInputProps('rule_id')}
        onChange={(id) => {
          setFieldValue('rule_id', id);
          if (isSuggested) setFieldValue('threshold', suggestedThreshold(ruleOf(id)));
        }}
        error={errors.rule_id}
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
            isSuggested && Number(values.threshold) === allowedInFiveMinutes(rule)
              ? 'As many as the rule allows one bucket in 5 minutes'
              : undefined
          }
          {...getInputProps('threshold')}
          error={errors.threshold}
        />
        <NumberInput
          label="Within"
          suffix=" min"
          min={1}
          max={60}
          allowDecimal={false}
          {...getInputProps('window_minutes')}
          error={errors.window_minutes}
        />
      </Group>
      {hasSubjects(kind) && (
        <NativeSelect
          label="Count"
          data={Object.entries(countedAs).map(([value, label]) => ({ value, label }))}
          {...getInputProps('per')}
          error={errors.per}
        />
      )}
    </>
  );
}
