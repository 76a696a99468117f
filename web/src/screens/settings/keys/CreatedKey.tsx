import { Link } from '@tanstack/react-router';
import type { Key } from '~/api/types';
import { CheckUrlHint, useCheckUrl } from '~/components/CheckUrl';
import { CodeBlock } from '~/components/CodeBlock';
import { SecretDialog } from '~/components/SecretDialog';
import { curlWith } from '~/domain/snippets';

export interface Created {
  key: Key;
  secret: string;
}

/** Shows a new key once, with a command to try it. */
export function CreatedKey({
  tenant,
  created,
  onClose,
}: {
  tenant: string;
  created: Created;
  onClose: () => void;
}) {
  const { url } = useCheckUrl();
  return (
    <SecretDialog title={`API key ${created.key.name}`} what="key" secret={created.secret} onClose={onClose}>
      {created.key.permissions.includes('check') && (
        <>
          <h3>Send a first check</h3>
          <CodeBlock label="curl" code={curlWith(created.secret, url, { user_id: '42' })} />
          <CheckUrlHint />
          <p className="soft">
            The key works within 2 s.{' '}
            <Link to="/t/$tenant/try" params={{ tenant }}>
              Try it
            </Link>{' '}
            has code for Go, Python and JavaScript.
          </p>
        </>
      )}
    </SecretDialog>
  );
}
