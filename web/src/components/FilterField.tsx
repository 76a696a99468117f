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
  const sent = useRef(value);
  const send = useRef((text: string) => {
    sent.current = text.trim() || undefined;
    latest.current(sent.current);
  });

  // Back, a link, a cleared filter: the address has the last word. What the field itself sent comes back late, when
  // more may have been typed, and changes nothing.
  useEffect(() => {
    if (value === sent.current) return;
    sent.current = value;
    setTyped(value ?? '');
  }, [value]);

  useEffect(() => {
    if (typed.trim() === (sent.current ?? '')) return;
    const timer = setTimeout(() => send.current(typed), moment);
    return () => clearTimeout(timer);
  }, [typed]);

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
        if (event.key === 'Enter') send.current(typed);
        if (event.key === 'Escape' && typed) setTyped('');
      }}
    />
  );
}
