import { TextInput } from '@mantine/core';
import { useState } from 'react';
import { FormDialog } from './FormDialog';

interface Props {
  title: string;
  lead: string;
  verb: string;
  /** What has to be typed first, because the removal is for good. */
  word: string;
  onClose: () => void;
  remove: (typed: string) => Promise<void>;
}

export function TypeToRemove({ word, remove, ...dialog }: Props) {
  const [typed, setTyped] = useState('');
  return (
    <FormDialog {...dialog} destructive disabled={typed !== word} save={() => remove(typed)}>
      <TextInput
        label={`Type ${word} to confirm`}
        data-autofocus
        autoComplete="off"
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
