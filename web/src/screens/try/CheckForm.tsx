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

interface Attribute {
  id: number;
  name: string;
  value: string;
}

const methods = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'];
const mostAttributes = 16;

export function CheckForm({ search, plans, error, onAsk }: Props) {
  const [fields, setFields] = useState(search);
  const [attributes, setAttributes] = useState(() => attributesOf(search));
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
    if (cost) return;
    const given = attributes.filter(({ name }) => name !== '');
    const query = new URLSearchParams(given.map(({ name, value }) => [name, value]));
    onAsk(
      Object.fromEntries(
        Object.entries({ ...fields, attributes: query.toString() })
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
        error={cost ?? error?.field('/cost')}
      />
      <Attributes attributes={attributes} onChange={setAttributes} />
      <Button type="submit">Run check</Button>
    </form>
  );
}

function attributesOf(search: TrySearch): Attribute[] {
  return [...new URLSearchParams(search.attributes)].map(([name, value], id) => ({ id, name, value }));
}

interface AttributesProps {
  attributes: Attribute[];
  onChange: (attributes: Attribute[]) => void;
}

function Attributes({ attributes, onChange }: AttributesProps) {
  const change = (id: number, more: Partial<Attribute>) =>
    onChange(attributes.map((one) => (one.id === id ? { ...one, ...more } : one)));
  const id = Math.max(-1, ...attributes.map((one) => one.id)) + 1;
  return (
    <fieldset className={styles.attributes}>
      <legend>Attributes</legend>
      {attributes.map(({ id, name, value }, index) => (
        <div key={id} className={styles.attribute}>
          <TextInput
            aria-label={`Attribute ${index + 1}: name`}
            placeholder="org"
            value={name}
            onChange={(event) => change(id, { name: event.currentTarget.value })}
          />
          <TextInput
            aria-label={`Attribute ${index + 1}: value`}
            placeholder="acme"
            value={value}
            onChange={(event) => change(id, { value: event.currentTarget.value })}
          />
          <ActionIcon
            aria-label={`Remove attribute ${index + 1}`}
            onClick={() => onChange(attributes.filter((one) => one.id !== id))}
          >
            <IconX size={14} />
          </ActionIcon>
        </div>
      ))}
      <div>
        <Button
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          disabled={attributes.length >= mostAttributes}
          onClick={() => onChange([...attributes, { id, name: '', value: '' }])}
        >
          Add attribute
        </Button>
      </div>
    </fieldset>
  );
}
