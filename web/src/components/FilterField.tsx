import { TextInput } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import { IconSearch } from './icons';

interface Props {
  label: string;
  placeholder?: string;
  /** As the URL has it. */
  value: string | undefined;
  /** What was typed, after a moment without typing or at once with Enter; undefined for nothing. */
  onChange: (value: string | undefined) => void;
  search?: boolean;
  className?: string;
}

const moment = 400;

/** A text that filters what is below, and lives in the URL. */
export function FilterField({ label, placeholder, value, onChange, search, className }: Props) {
  const [typed, setTyped] = useState(value ?? '');
  const latest = useRef(onChange);
  latest.current = onChange;

  // Back, a link, a cleared filter: the address has the last word.
  useEffect(() => setTyped(value ?? ''), [value]);

  useEffect(() => {
    if (typed.trim() === (value ?? '')) return;
    const timer = setTimeout(() => latest.current(typed.trim() || undefined), moment);
    return () => clearTimeout(timer);
  }, [typed, value]);

  return (
    <TextInput
      className={className}
      aria-label={label}
      placeholder={placeholder ?? label}
      value={typed}
      spellCheck={false}
      leftSection={search && <IconSearch size={15} aria-hidden />}
      onChange={(event) => setTyped(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key === 'Enter') onChange(typed.trim() || undefined);
        if (event.key === 'Escape' && typed) setTyped('');
      }}
    />
  );
}
