import { Button, Checkbox, Group, TextInput } from '@mantine/core';
import { useState } from 'react';
import type { MatrixRow } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { PatternBuilder } from '~/components/PatternBuilder';
import { parsePattern, printPattern, scopeOf } from '~/domain/pattern';
import { rowId } from './draft';

interface Props {
  /** The existing rows. */
  taken: string[];
  onClose: () => void;
  onAdd: (row: MatrixRow, shadow: boolean) => void;
}

/** Adds a row to the matrix. Its rates are typed into the cells. */
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
    <Dialog onClose={onClose} size={560} title="Add rule">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!row || exists) return;
          onAdd(row, shadow);
          onClose();
        }}
      >
        <PatternBuilder value={text} onChange={setText} />
        <TextInput
          mt="md"
          label="Name"
          description="Distinguishes rules with the same pattern, such as daily and per second. Optional."
          value={name}
          error={exists && 'A rule with this pattern and name already exists. Choose another name.'}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <Checkbox
          mt="md"
          label="Start in shadow mode"
          description="The rule reports what it would deny, and denies nothing until you enforce it on its page."
          checked={shadow}
          onChange={(event) => setShadow(event.currentTarget.checked)}
        />
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" disabled={!row || exists}>
            Add rule
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}

/** The first common pattern that has no row yet. */
function first(taken: string[]): string {
  const usual = ['user:{user_id}', 'ip:{ip}', 'endpoint:{endpoint}', 'global'];
  return usual.find((key_pattern) => !taken.includes(rowId({ key_pattern, name: '' }))) ?? '';
}
