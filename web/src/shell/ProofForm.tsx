import { Button, Group, PasswordInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { answerProof } from '~/api/proof';
import { identitiesQuery } from '~/api/queries';
import type { Session } from '~/api/types';
import { CodeInput } from '~/components/CodeInput';
import { Dialog } from '~/components/Dialog';
import { FormDialog, FormError, fieldErrors } from '~/components/FormDialog';
import { Query } from '~/components/Query';
import styles from './ProofForm.module.css';

const title = 'Confirm that it is you';
const lead = 'This change needs a recent sign-in, and you signed in more than 10 minutes ago.';

export default function ProofForm({ session }: { session: Session }) {
  const { account, has_password } = session;
  return has_password ? (
    <ByPassword email={account.email} needsCode={account.second_factor} />
  ) : (
    <AtProvider needsCode={account.second_factor} />
  );
}

function ByPassword({ email, needsCode }: { email: string; needsCode: boolean }) {
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  return (
    <FormDialog
      title={title}
      lead={lead}
      verb="Continue"
      size={400}
      onClose={() => answerProof(false)}
      onSaved={() => answerProof(true)}
      save={() => api.post('/api/v1/session/confirm', { body: { password, ...(needsCode && { code }) } })}
    >
      {(wrong) => (
        <>
          <input type="hidden" autoComplete="username" value={email} readOnly />
          <PasswordInput
            label="Your password"
            autoComplete="current-password"
            data-autofocus
            required
            value={password}
            error={wrong('/password')}
            onChange={(event) => setPassword(event.currentTarget.value)}
          />
          {needsCode && <CodeInput value={code} onChange={setCode} error={wrong('/code')} />}
        </>
      )}
    </FormDialog>
  );
}

/** Leaves the page for a provider; the reader repeats the refused request after coming back. */
function AtProvider({ needsCode }: { needsCode: boolean }) {
  const identities = useQuery(identitiesQuery);
  const [code, setCode] = useState('');
  const start = useMutation({
    mutationFn: (provider: string) =>
      api.post('/api/v1/session/confirm/provider', { body: { provider, next: here(), ...(needsCode && { code }) } }),
    onSuccess: ({ url }) => window.location.assign(url),
  });
  const { wrong, rest } = fieldErrors(start.error);
  const codeError = needsCode ? wrong('/code') : undefined;
  return (
    <Dialog title={title} size={400} onClose={() => answerProof(false)} pending={start.isPending}>
      <div className={styles.form}>
        <p className="soft">{lead}</p>
        <Query query={identities}>
          {(items) => {
            const providers = items.flatMap(({ provider }) => provider ?? []);
            if (providers.length === 0) {
              return <p>No way to confirm is linked with your account. Sign out, and sign in again as before.</p>;
            }
            return (
              <>
                <p>Sign in again where you usually do. You come back to this page, and make the change again.</p>
                {needsCode && <CodeInput value={code} onChange={setCode} error={codeError} />}
                {providers.map(({ slug, name }) => (
                  <Button
                    key={slug}
                    fullWidth
                    loading={start.variables === slug && (start.isPending || start.isSuccess)}
                    onClick={() => start.mutate(slug)}
                  >
                    Continue at {name}
                  </Button>
                ))}
              </>
            );
          }}
        </Query>
        <FormError>{rest()}</FormError>
        <Group justify="flex-end">
          <Button variant="default" onClick={() => answerProof(false)} disabled={start.isPending}>
            Cancel
          </Button>
        </Group>
      </div>
    </Dialog>
  );
}

function here(): string {
  const { pathname, search, hash } = window.location;
  const whole = pathname + search + hash;
  return whole.length <= 1024 ? whole : pathname;
}
