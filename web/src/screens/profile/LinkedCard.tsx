import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import { identitiesKey, identitiesQuery, signInOptionsQuery } from '~/api/queries';
import type { Identity, ProviderName } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { RelativeTime } from '~/components/Time';
import { done } from '~/components/toast';
import { whyNot } from '~/domain/provider';
import styles from './Profile.module.css';

export function LinkedCard() {
  const options = useQuery(signInOptionsQuery);
  const identities = useQuery(identitiesQuery);
  const [linking, setLinking] = useState<ProviderName | null>(null);
  const [unlinking, setUnlinking] = useState<Identity | null>(null);
  const providers = options.data?.providers ?? [];
  if (providers.length === 0 && !identities.data?.length) return null;
  return (
    <Card
      flush
      title="Linked accounts"
      actions={providers.map((provider) => (
        <Button key={provider.slug} variant="default" onClick={() => setLinking(provider)}>
          Link {provider.name} …
        </Button>
      ))}
    >
      <Outcome providers={providers} />
      <Query query={identities}>
        {(items) =>
          items.length === 0 ? (
            <p className={styles.none}>None yet.</p>
          ) : (
            <ul className={styles.sessions}>
              {items.map((identity) => (
                <Linked key={identity.identity_id} identity={identity} onUnlink={() => setUnlinking(identity)} />
              ))}
            </ul>
          )
        }
      </Query>
      {linking && <LinkDialog provider={linking} onClose={() => setLinking(null)} />}
      {unlinking && <UnlinkDialog identity={unlinking} onClose={() => setUnlinking(null)} />}
    </Card>
  );
}

function Outcome({ providers }: { providers: ProviderName[] }) {
  const { linked, failed, provider } = useSearch({ strict: false }) as Record<string, string | undefined>;
  const name = (slug?: string) => providers.find((one) => one.slug === slug)?.name ?? 'The provider';
  if (failed) {
    return (
      <p role="alert" className={styles.failed}>
        {whyNot(failed, name(provider))}
      </p>
    );
  }
  return linked ? (
    <p role="status" className={styles.none}>
      {name(linked)} is linked.
    </p>
  ) : null;
}

function nameOf({ provider, issuer }: Identity): string {
  return provider?.name ?? issuer;
}

function Linked({ identity, onUnlink }: { identity: Identity; onUnlink: () => void }) {
  const { email, provider, created_at, last_used_at } = identity;
  return (
    <li>
      <div>
        <div>
          <strong>{nameOf(identity)}</strong> {email}
        </div>
        <div className={styles.detail}>
          {!provider && 'signs in nobody, because the provider is not configured any more; '}
          linked <RelativeTime at={created_at} />
          {last_used_at && (
            <>
              , last used <RelativeTime at={last_used_at} />
            </>
          )}
        </div>
      </div>
      <Button variant="default" aria-label={`Unlink ${nameOf(identity)} …`} onClick={onUnlink}>
        Unlink …
      </Button>
    </li>
  );
}

function LinkDialog({ provider, onClose }: { provider: ProviderName; onClose: () => void }) {
  return (
    <FormDialog
      title={`Link ${provider.name}`}
      lead="From then on it signs in to this account."
      verb={`Go to ${provider.name}`}
      onClose={onClose}
      onSaved={() => undefined} // the page is about to be left
      save={async () => {
        const { url } = await api.post('/api/v1/account/identities', { body: { provider: provider.slug } });
        window.location.assign(url);
      }}
    >
      {() => null}
    </FormDialog>
  );
}

function UnlinkDialog({ identity, onClose }: { identity: Identity; onClose: () => void }) {
  const queries = useQueryClient();
  return (
    <FormDialog
      title={`Unlink ${nameOf(identity)}?`}
      lead="It will not sign in to this account any more. Sessions go on."
      verb="Unlink"
      destructive
      onClose={onClose}
      onSaved={async () => {
        onClose();
        await queries.invalidateQueries({ queryKey: identitiesKey });
        done(`${nameOf(identity)} unlinked`);
      }}
      save={() => api.post('/api/v1/account/identities/{identity_id}/unlink', { identity_id: identity.identity_id })}
    >
      {() => null}
    </FormDialog>
  );
}
