import { TextInput } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import { IconSearch } from './icons';

interface Props {
  label: string;
  placeholder?: string;
  value: string | undefined;
  /** Called after a pause in typing, or at once on Enter; undefined if the text is empty. */
  onChange: (value: string | undefined) => void;
  search?: boolean;
  className?: string;
}

const moment = 400;

export function FilterField({ label, placeholder, value, onChange, search, className }: Props) {
  const [typed, setTyped] = useState(value ?? '');
  const latest = useRef(onChange);
  latest.current = onChange;
  const sent = useRef(value);
  const send = useRef((text: string) => {
    sent.current = text.trim() || undefined;
    latest.current(sent.current);
  });

  // The field follows the URL, but not the value that it sent itself: more may have been typed since.
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
