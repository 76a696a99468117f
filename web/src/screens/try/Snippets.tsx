import { SegmentedControl, TextInput } from '@mantine/core';
import { useLocalStorage } from '@mantine/hooks';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Check } from '~/api/types';
import { CodeBlock } from '~/components/CodeBlock';
import { Card } from '~/components/Page';
import { defaultCheckUrl, keyVariable, type Language, languages, snippet } from '~/domain/snippets';
import styles from './TryIt.module.css';

/** Where the check endpoint is: nothing tells this page, so it is remembered once somebody did. */
export function useCheckUrl() {
  return useLocalStorage({
    key: 'sluice-check-url',
    defaultValue: defaultCheckUrl(window.location),
    getInitialValueInEffect: false,
  });
}

/** The same check as a program would send it. */
export function Snippets({ tenant, check }: { tenant: string; check: Check }) {
  const [language, setLanguage] = useState<Language>('curl');
  const [url, setUrl] = useCheckUrl();
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
        <TextInput
          className={styles.address}
          label="Address of your check endpoint"
          value={url}
          onChange={(event) => setUrl(event.currentTarget.value)}
        />
      </div>
    </Card>
  );
}
