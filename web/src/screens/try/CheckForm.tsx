import { ActionIcon, Button, NativeSelect, Select, TextInput } from '@mantine/core';
import { useState } from 'react';
import type { ProblemError } from '~/api/problem';
import { IconPlus, IconX } from '~/components/icons';
import { costProblem } from '~/domain/check';
import type { TrySearch } from '~/search';
import styles from './TryIt.module.css';

interface Props {
  search: TrySearch;
  plans: string[];
  error?: ProblemError;
  onAsk: (search: TrySearch) => void;
}

interface Pair {
  id: number;
  name: string;
  value: string;
}

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];
const mostAttributes = 16;
const mostMeters = 7; // beside requests

export function CheckForm({ search, plans, error, onAsk }: Props) {
  const [fields, setFields] = useState(search);
  const [attributes, setAttributes] = useState(() => pairsOf(search.attributes));
  const [costs, setCosts] = useState(() => pairsOf(search.costs));
  const set = (field: keyof TrySearch) => (value: string | null) =>
    setFields((before) => ({ ...before, [field]: value || undefined }));
  const typed = (field: keyof TrySearch) => ({
    value: fields[field] ?? '',
    error: error?.field(`/${field === 'user' ? 'user_id' : field}`),
    onChange: (event: React.ChangeEvent<HTMLInputElement>) => set(field)(event.currentTarget.value),
    classNames: { input: 'numeric' },
    autoComplete: 'off',
  });
  const cost = costProblem(fields.cost ?? '');

  function submit(event: React.FormEvent) {
    event.preventDefault();
    if (cost || named(costs).some(({ value }) => costProblem(value))) return;
    onAsk(
      Object.fromEntries(
        Object.entries({ ...fields, attributes: textOf(attributes), costs: textOf(costs) })
          .map(([name, value]) => [name, value?.trim()])
          .filter(([, value]) => value),
      ),
    );
  }

  return (
    <form className={styles.form} onSubmit={submit}>
      <TextInput label="User" placeholder="42" {...typed('user')} />
      <div className={styles.pair}>
        <NativeSelect
          label="Method"
          value={fields.method ?? ''}
          error={error?.field('/method')}
          data={[{ value: '', label: '–' }, ...methods]}
          onChange={(event) => set('method')(event.currentTarget.value)}
        />
        <TextInput label="Endpoint" placeholder="/api/search" {...typed('endpoint')} />
      </div>
      <TextInput label="IP address" placeholder="203.0.113.9" {...typed('ip')} />
      <Select
        label="Plan"
        placeholder="The user’s plan"
        clearable
        searchable
        nothingFoundMessage="No results"
        data={plans}
        value={fields.plan ?? null}
        error={error?.field('/plan')}
        onChange={set('plan')}
      />
      <TextInput
        label="Cost"
        placeholder="1"
        inputMode="decimal"
        {...typed('cost')}
        error={cost ?? error?.field('/cost') ?? error?.field('/costs/requests')}
      />
      <Pairs
        title="Costs of other meters"
        one="Meter"
        add="Add cost"
        example={['input_tokens', '1200']}
        pairs={costs}
        most={mostMeters}
        error={({ name, value }) => (name && costProblem(value)) || error?.field(`/costs/${name}`)}
        onChange={setCosts}
      />
      <Pairs
        title="Attributes"
        one="Attribute"
        add="Add attribute"
        example={['org', 'acme']}
        pairs={attributes}
        most={mostAttributes}
        onChange={setAttributes}
      />
      <Button type="submit">Run check</Button>
    </form>
  );
}

function pairsOf(text: string | undefined): Pair[] {
  return [...new URLSearchParams(text)].map(([name, value], id) => ({ id, name, value }));
}

function named(pairs: Pair[]): Pair[] {
  return pairs.map((pair) => ({ ...pair, name: pair.name.trim() })).filter(({ name }) => name !== '');
}

function textOf(pairs: Pair[]): string {
  return new URLSearchParams(named(pairs).map(({ name, value }) => [name, value.trim()])).toString();
}

interface PairsProps {
  title: string;
  /** Names a line for screen readers, with its number. */
  one: string;
  add: string;
  example: [string, string];
  pairs: Pair[];
  most: number;
  error?: (pair: Pair) => string | undefined;
  onChange: (pairs: Pair[]) => void;
}

function Pairs({ title, one, add, example, pairs, most, error, onChange }: PairsProps) {
  const change = (id: number, more: Partial<Pair>) =>
    onChange(pairs.map((pair) => (pair.id === id ? { ...pair, ...more } : pair)));
  const next = Math.max(-1, ...pairs.map((pair) => pair.id)) + 1;
  return (
    <fieldset className={styles.attributes}>
      <legend>{title}</legend>
      {pairs.map((pair, index) => (
        <div key={pair.id} className={styles.attribute}>
          <TextInput
            aria-label={`${one} ${index + 1}: name`}
            placeholder={example[0]}
            value={pair.name}
            autoComplete="off"
            onChange={(event) => change(pair.id, { name: event.currentTarget.value })}
          />
          <TextInput
            aria-label={`${one} ${index + 1}: value`}
            placeholder={example[1]}
            value={pair.value}
            error={error?.(pair)}
            autoComplete="off"
            onChange={(event) => change(pair.id, { value: event.currentTarget.value })}
          />
          <ActionIcon
            aria-label={`Remove ${one.toLowerCase()} ${index + 1}`}
            onClick={() => onChange(pairs.filter(({ id }) => id !== pair.id))}
          >
            <IconX size={14} />
          </ActionIcon>
        </div>
      ))}
      <div>
        <Button
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          disabled={pairs.length >= most}
          onClick={() => onChange([...pairs, { id: next, name: '', value: '' }])}
        >
          {add}
        </Button>
      </div>
    </fieldset>
  );
}
