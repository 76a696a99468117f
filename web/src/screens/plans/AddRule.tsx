import { Checkbox, TextInput } from '@mantine/core';
import { useState } from 'react';
import { FormDialog } from '~/components/FormDialog';
import { PatternBuilder } from '~/components/PatternBuilder';
import { isMeter, notAMeter, requests } from '~/domain/meter';
import { parsePattern, printPattern, scopeOf } from '~/domain/pattern';
import { fieldLabels } from '~/domain/rule';
import { type Row, rowId } from './draft';

interface Props {
  taken: string[];
  onClose: () => void;
  onAdd: (row: Row, shadow: boolean) => void;
}

export function AddRule({ taken, onClose, onAdd }: Props) {
  const [text, setText] = useState(() => first(taken));
  const [name, setName] = useState('');
  const [meter, setMeter] = useState<string>(requests);
  const [shadow, setShadow] = useState(false);
  const parsed = parsePattern(text);
  const row = parsed.segments && {
    key_pattern: printPattern(parsed.segments),
    name: name.trim() || (meter === requests ? '' : meter),
    meter,
    scope: scopeOf(parsed.segments),
    rules: [],
  };
  const exists = row !== undefined && taken.includes(rowId(row));

  return (
    <FormDialog
      onClose={onClose}
      size={560}
      title="Add rule"
      verb="Add rule"
      disabled={!row || exists || !isMeter(meter)}
      save={async () => row && onAdd(row, shadow)}
    >
      <PatternBuilder value={text} onChange={setText} />
      <TextInput
        label="Name"
        description="Optional: tells rules with the same pattern apart."
        value={name}
        error={exists && 'A rule with this pattern and name already exists. Choose another name.'}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <TextInput
        label={fieldLabels.meter}
        description="requests, or what checks name in costs, such as input_tokens or usd."
        value={meter}
        error={!isMeter(meter) && notAMeter}
        onChange={(event) => setMeter(event.currentTarget.value.trim())}
      />
      <Checkbox
        label="Start in shadow mode"
        description="Denies nothing until you enforce it."
        checked={shadow}
        onChange={(event) => setShadow(event.currentTarget.checked)}
      />
    </FormDialog>
  );
}

function first(taken: string[]): string {
  const usual = ['user:{user_id}', 'ip:{ip}', 'endpoint:{endpoint}', 'global'];
  return usual.find((key_pattern) => !taken.includes(rowId({ key_pattern, name: '' }))) ?? '';
}
