import { SegmentedControl, TextInput } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import type { Check } from '~/api/types';
import { CheckUrlHint, useCheckUrl } from '~/components/CheckUrl';
import { CodeBlock } from '~/components/CodeBlock';
import { Card } from '~/components/Page';
import { keyVariable, type Language, languages, snippet } from '~/domain/snippets';
import styles from './TryIt.module.css';

/** Code that sends the same check. */
export function Snippets({ tenant, check }: { tenant: string; check: Check }) {
  const [language, setLanguage] = useState<Language>('curl');
  const { url, isKnown, typed, type } = useCheckUrl();
  const lead = (
    <>
      This takes tokens. Set <code>{keyVariable}</code> to an{' '}
      <Link to="/t/$tenant/settings/$section" params={{ tenant, section: 'keys' }}>
        API key
      </Link>{' '}
      first.
    </>
  );
  return (
    <Card
      title="Send this check from your service"
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
            label="URL of your check endpoint"
            placeholder="https://limits.example.com"
            value={typed}
            onChange={(event) => type(event.currentTarget.value)}
          />
        )}
      </div>
    </Card>
  );
}
