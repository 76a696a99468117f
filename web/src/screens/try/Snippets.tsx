import { SegmentedControl, TextInput } from '@mantine/core';
import { useLocalStorage } from '@mantine/hooks';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Check } from '~/api/types';
import { CodeBlock } from '~/components/CodeBlock';
import { Card } from '~/components/Page';
import { keyVariable, type Language, languages, snippet, unknownCheckUrl } from '~/domain/snippets';
import { useSession } from '~/session';
import styles from './TryIt.module.css';

/** Where services reach the check endpoint: what the server says, else what was typed here before. */
export function useCheckUrl() {
  const { check_url } = useSession();
  const [typed, type] = useLocalStorage({
    key: 'sluice-check-url',
    defaultValue: '',
    getInitialValueInEffect: false,
  });
  return { url: check_url ?? (typed || unknownCheckUrl), isKnown: check_url !== null, typed, type };
}

/** Says that the address in a snippet is a placeholder, and who can set it; nothing if the server knows it. */
export function CheckUrlHint() {
  const { isKnown, typed } = useCheckUrl();
  if (isKnown || typed) return null;
  return (
    <p className="soft">
      Replace <code>{unknownCheckUrl}</code> by the address of your check endpoint: it has another port than
      this page. <code>SLUICE_CHECK_URL</code> tells it to everybody here.
    </p>
  );
}

/** The same check as a program would send it. */
export function Snippets({ tenant, check }: { tenant: string; check: Check }) {
  const [language, setLanguage] = useState<Language>('curl');
  const { url, isKnown, typed, type } = useCheckUrl();
  const lead = (
    <>
      This one takes tokens. Put an{' '}
      <Link to="/t/$tenant/settings/$section" params={{ tenant, section: 'keys' }}>
        API key
      </Link>{' '}
      into <code>{keyVariable}</code> first.
    </>
  );
  return (
    <Card
      title="The same check from your service"
      lead={lead}
      actions={
        <SegmentedControl
          size="xs"
          aria-label="Language"
          data={languages.map(({ value, label }) => ({ value, label }))}
          value={language}
          onChange={(value) => setLanguage(value as Language)}
        />
      }
    >
      <div className={styles.snippets}>
        <CodeBlock
          label={languages.find(({ value }) => value === language)?.label ?? language}
          code={snippet(language, url, check)}
        />
        <CheckUrlHint />
        {!isKnown && (
          <TextInput
            className={styles.address}
            label="Address of your check endpoint"
            placeholder="https://limits.example.com"
            value={typed}
            onChange={(event) => type(event.currentTarget.value)}
          />
        )}
      </div>
    </Card>
  );
}
