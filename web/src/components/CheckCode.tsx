import { SegmentedControl } from '@mantine/core';
import { lazy, Suspense, useState } from 'react';
import type { Check } from '~/api/types';
import { curlWith, type Language, languages, type ProxyName, proxies, snippet } from '~/domain/snippets';
import styles from './CheckCode.module.css';
import { CheckUrlHint, useCheckUrl } from './CheckUrl';
import { CodeBlock } from './CodeBlock';
import { LoadingLines } from './states';

const ProxyCode = lazy(() => import('./ProxyCode'));

interface Props {
  check: Check;
  secret?: string;
}

export function CheckCode({ check, secret }: Props) {
  const [chosen, setChosen] = useState<Language | ProxyName>('curl');
  return (
    <div className={styles.code}>
      <SegmentedControl
        size="xs"
        classNames={{ root: styles.choice, control: styles.part }}
        withItemsBorders={false}
        aria-label="Language or proxy"
        data={[...languages, ...proxies].map(({ value, label }) => ({ value, label }))}
        value={chosen}
        onChange={(value) => setChosen(value as Language | ProxyName)}
      />
      {isProxy(chosen) ? (
        <Suspense fallback={<LoadingLines />}>
          <ProxyCode proxy={chosen} secret={secret} />
        </Suspense>
      ) : (
        <Program language={chosen} check={check} secret={secret} />
      )}
    </div>
  );
}

function isProxy(chosen: Language | ProxyName): chosen is ProxyName {
  return proxies.some(({ value }) => value === chosen);
}

function Program({ language, check, secret }: Props & { language: Language }) {
  const { url } = useCheckUrl();
  const code = language === 'curl' && secret ? curlWith(secret, url, check) : snippet(language, url, check);
  return (
    <>
      <CodeBlock label={languages.find(({ value }) => value === language)?.label ?? language} code={code} />
      <CheckUrlHint />
    </>
  );
}
