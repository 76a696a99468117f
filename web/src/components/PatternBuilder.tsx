import { ActionIcon, Button, NativeSelect, TextInput } from '@mantine/core';
import { useState } from 'react';
import { type Field, parsePattern, patternInWords, printPattern, type Segment } from '~/domain/pattern';
import { IconPlus, IconX } from './icons';
import styles from './PatternBuilder.module.css';

interface Props {
  value: string;
  onChange: (text: string) => void;
  error?: string;
}

const fields: { value: Field; label: string }[] = [
  { value: 'user', label: 'User' },
  { value: 'endpoint', label: 'Endpoint' },
  { value: 'ip', label: 'IP address' },
  { value: 'attr', label: 'Attribute' },
  { value: 'global', label: 'Everything' },
];

const eachLabel: Record<Field, string> = {
  user: 'each user',
  endpoint: 'each endpoint',
  ip: 'each address',
  attr: 'each value',
  global: 'all requests',
};

export function PatternBuilder({ value, onChange, error }: Props) {
  const parsed = parsePattern(value);
  const [parts, setParts] = useState<Segment[]>(parsed.segments ?? []);
  const begun = value !== '' && parts.every((part) => part.each || part.field === 'global' || part.value !== '');

  function build(next: Segment[]) {
    setParts(next);
    onChange(printPattern(next));
  }

  function type(text: string) {
    const { segments } = parsePattern(text);
    if (segments) setParts(segments);
    onChange(text);
  }

  const free = fields.filter(({ value: field }) => field === 'attr' || !parts.some((part) => part.field === field));
  const next = free.find(({ value: field }) => field !== 'global');

  return (
    <fieldset className={styles.builder}>
      <legend className="field-label">Matches</legend>
      {parts.map((part, index) => (
        <Part
          // biome-ignore lint/suspicious/noArrayIndexKey: parts have no other identity while they are changed
          key={index}
          part={part}
          parts={parts}
          only={parts.length === 1}
          onChange={(to) => build(parts.with(index, to))}
          onRemove={() => build(parts.toSpliced(index, 1))}
        />
      ))}
      {parts[0]?.field !== 'global' && next && (
        <Button
          variant="subtle"
          leftSection={<IconPlus size={14} />}
          className={styles.add}
          onClick={() => build([...parts, empty(next.value)])}
        >
          Add condition
        </Button>
      )}
      <TextInput
        label="Key pattern"
        description="Values with a colon stand in double quotes."
        value={value}
        error={error ?? (begun ? parsed.error : undefined)}
        spellCheck={false}
        onChange={(event) => type(event.currentTarget.value)}
        styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12 } }}
      />
      {parsed.segments && <strong>{patternInWords(value)}</strong>}
    </fieldset>
  );
}

function empty(field: Field): Segment {
  if (field === 'attr') return { field, attribute: 'org', each: true, value: '' };
  return { field, each: field !== 'endpoint' && field !== 'global', value: '' };
}

interface PartProps {
  part: Segment;
  parts: Segment[];
  only: boolean;
  onChange: (part: Segment) => void;
  onRemove: () => void;
}

function Part({ part, parts, only, onChange, onRemove }: PartProps) {
  const choices = fields.filter(
    ({ value }) =>
      value === part.field ||
      (value === 'global' ? only : value === 'attr' || !parts.some(({ field }) => field === value)),
  );
  return (
    <div className={styles.part}>
      <NativeSelect
        aria-label="Field"
        value={part.field}
        data={choices}
        onChange={(event) => onChange(empty(event.currentTarget.value as Field))}
      />
      {part.field === 'attr' && (
        <TextInput
          aria-label="Attribute"
          value={part.attribute}
          className={styles.attribute}
          onChange={(event) => onChange({ ...part, attribute: event.currentTarget.value })}
        />
      )}
      {part.field === 'global' ? (
        <span className={styles.global}>{eachLabel.global}</span>
      ) : (
        <NativeSelect
          aria-label="Match"
          value={part.each ? 'each' : 'only'}
          data={[
            { value: 'each', label: eachLabel[part.field] },
            { value: 'only', label: 'exactly' },
          ]}
          onChange={(event) =>
            onChange({
              ...part,
              each: event.currentTarget.value === 'each',
              method: undefined,
              below: undefined,
            })
          }
        />
      )}
      {part.field !== 'global' && !part.each && (
        <TextInput
          aria-label="Value"
          className={styles.value}
          placeholder={
            part.field === 'endpoint' ? '/api/* or POST /v1/charges' : part.field === 'ip' ? '203.0.113.0/24' : ''
          }
          value={part.field === 'endpoint' ? endpointText(part) : part.value}
          onChange={(event) => onChange({ ...part, ...readValue(part.field, event.currentTarget.value) })}
        />
      )}
      {!only && (
        <ActionIcon aria-label="Remove condition" onClick={onRemove}>
          <IconX size={15} />
        </ActionIcon>
      )}
    </div>
  );
}

function endpointText({ method, value, below }: Segment): string {
  return `${method ? `${method} ` : ''}${value}${below ? '*' : ''}`;
}

function readValue(field: Field, text: string): Partial<Segment> {
  if (field !== 'endpoint') return { value: text };
  const [, method, path = ''] = /^(?:([A-Z][A-Z_-]*) )?(.*)$/.exec(text) ?? [];
  const below = path.endsWith('/*');
  return { method, below, value: below ? path.slice(0, -1) : path };
}
