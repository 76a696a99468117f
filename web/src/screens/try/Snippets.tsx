import { TextInput } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import type { Check } from '~/api/types';
import { CheckCode } from '~/components/CheckCode';
import { useCheckUrl } from '~/components/CheckUrl';
import { Card } from '~/components/Page';
import { keyVariable } from '~/domain/snippets';
import styles from './TryIt.module.css';

export function Snippets({ tenant, check }: { tenant: string; check: Check }) {
  const { isKnown, typed, type } = useCheckUrl();
  const lead = (
    <>
      This sends the check for real. Set <code>{keyVariable}</code> to an{' '}
      <Link to="/t/$tenant/settings/$section" params={{ tenant, section: 'keys' }}>
        API key
      </Link>{' '}
      first.
    </>
  );
  return (
    <Card title="Send this check for real" lead={lead}>
      <div className={styles.snippets}>
        <CheckCode check={check} />
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
