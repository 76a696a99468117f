import { SegmentedControl } from '@mantine/core';
import { useState } from 'react';
import type { Check } from '~/api/types';
import { curlWith, type Language, languages, snippet } from '~/domain/snippets';
import styles from './CheckCode.module.css';
import { CheckUrlHint, useCheckUrl } from './CheckUrl';
import { CodeBlock } from './CodeBlock';

/** Code that sends a check, in the language of one's choice. A secret goes into the curl; programs read theirs elsewhere. */
export function CheckCode({ check, secret }: { check: Check; secret?: string }) {
  const [language, setLanguage] = useState<Language>('curl');
  const { url } = useCheckUrl();
  const code = language === 'curl' && secret ? curlWith(secret, url, check) : snippet(language, url, check);
  return (
    <div className={styles.code}>
      <SegmentedControl
        size="xs"
        aria-label="Language"
        data={languages.map(({ value, label }) => ({ value, label }))}
        value={language}
        onChange={(value) => setLanguage(value as Language)}
      />
      <CodeBlock label={languages.find(({ value }) => value === language)?.label ?? language} code={code} />
      <CheckUrlHint />
    </div>
  );
}
