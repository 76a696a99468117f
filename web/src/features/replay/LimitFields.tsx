import { Button, Group, Select } from '@mantine/core';
import type { Rule } from '~/api/types';
import type { Wrong } from '~/components/FormDialog';
import { LimitPair } from '~/components/LimitPair';
import { type Limit, limitSentence, sameLimit, times } from '~/domain/rate';
import { ruleLabel } from '~/domain/rule';
import styles from './Replay.module.css';

interface Props {
  rules: Rule[];
  rule: Rule | undefined;
  limit: Limit | null;
  wrong: Wrong;
  onRule: (id: string) => void;
  onLimit: (limit: Limit) => void;
}

export function LimitFields({ rules, rule, limit, wrong, onRule, onLimit }: Props) {
  return (
    <>
      <Select
        label="Rule"
        placeholder="Search rules"
        searchable
        allowDeselect={false}
        nothingFoundMessage="No results"
        data={rules.map((one) => ({ value: String(one.rule_id), label: ruleLabel(one) }))}
        value={rule ? String(rule.rule_id) : null}
        onChange={(chosen) => chosen !== null && onRule(chosen)}
      />
      {rule && limit && <Numbers rule={rule} limit={limit} wrong={wrong} onLimit={onLimit} />}
    </>
  );
}

function Numbers({ rule, limit, wrong, onLimit }: { rule: Rule; limit: Limit } & Pick<Props, 'wrong' | 'onLimit'>) {
  return (
    <div>
      <LimitPair limit={limit} wrong={wrong} at="/rules/0" onChange={(part) => onLimit({ ...limit, ...part })} />
      <Group gap={8} mt={8}>
        <Button variant="default" size="compact-sm" onClick={() => onLimit(times(rule, 0.5))}>
          Half
        </Button>
        <Button variant="default" size="compact-sm" onClick={() => onLimit(times(rule, 2))}>
          Double
        </Button>
        <span className="soft">of the present {limitSentence(rule)}</span>
      </Group>
      <p className={`soft ${styles.note}`}>{noteOn(rule, limit)}</p>
    </div>
  );
}

function noteOn(rule: Rule, limit: Limit): string {
  return [
    sameLimit(rule, limit) && 'Change the limit to replay it.',
    rule.key_pattern.includes('user:{user_id}') && 'Users with an override keep theirs.',
    !rule.is_active && 'The rule is off, and is on in the replay.',
    rule.mode === 'shadow' && 'The rule is in shadow mode: the result is what it would deny.',
  ]
    .filter(Boolean)
    .join(' ');
}
