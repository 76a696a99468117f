import { Link } from '@tanstack/react-router';
import type { Key } from '~/api/types';
import { CheckCode } from '~/components/CheckCode';
import { SecretDialog } from '~/components/SecretDialog';
import { keyVariable } from '~/domain/snippets';

export interface Created {
  key: Key;
  secret: string;
}

export function CreatedKey({
  tenant,
  created,
  used,
  onClose,
}: {
  tenant: string | null;
  created: Created;
  used: boolean;
  onClose: () => void;
}) {
  return (
    <SecretDialog title={`API key ${created.key.name}`} what="key" secret={created.secret} onClose={onClose}>
      {tenant !== null && created.key.permissions.includes('check') && (
        <>
          <h3>Send a first check</h3>
          <CheckCode check={{ user_id: '42' }} secret={created.secret} />
          <p className="soft">
            The key works within 2 s. Programs read it from <code>{keyVariable}</code>.{' '}
            <Link to="/t/$tenant/try" params={{ tenant }}>
              Try it
            </Link>{' '}
            has code for other checks.
          </p>
          <p role="status">
            {used
              ? 'A check with this key has arrived.'
              : 'Waiting for a check with this key. It shows here within 20 s.'}
          </p>
        </>
      )}
    </SecretDialog>
  );
}
