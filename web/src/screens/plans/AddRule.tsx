import { Checkbox, TextInput } from '@mantine/core';
import { useState } from 'react';
import type { MatrixRow } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { PatternBuilder } from '~/components/PatternBuilder';
import { parsePattern, printPattern, scopeOf } from '~/domain/pattern';
import { rowId } from './draft';

interface Props {
  taken: string[];
  onClose: () => void;
  onAdd: (row: MatrixRow, shadow: boolean) => void;
}

export function AddRule({ taken, onClose, onAdd }: Props) {
  const [text, setText] = useState(() => first(taken));
  const [name, setName] = useState('');
  const [shadow, setShadow] = useState(false);
  const parsed = parsePattern(text);
  const row = parsed.segments && {
    key_pattern: printPattern(parsed.segments),
    name: name.trim(),
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
      disabled={!row || exists}
      save={async () => row && onAdd(row, shadow)}
    >
      <PatternBuilder value={text} onChange={setText} />
      <TextInput
        label="Name"
        description="Distinguishes rules with the same pattern, such as daily and per second. Optional."
        value={name}
        error={exists && 'A rule with this pattern and name already exists. Choose another name.'}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <Checkbox
        label="Start in shadow mode"
        description="The rule reports what it would deny, and denies nothing until you enforce it on its page."
        checked={shadow}
        onChange={(event) => setShadow(event.currentTarget.checked)}
      />
    </FormDialog>
  );
}

/** The first common pattern that has no row yet. */
function first(taken: string[]): string {
  const usual = ['user:{user_id}', 'ip:{ip}', 'endpoint:{endpoint}', 'global'];
  return usual.find((key_pattern) => !taken.includes(rowId({ key_pattern, name: '' }))) ?? '';
}
