import { PasswordInput } from '@mantine/core';
import { useState } from 'react';
import { api } from '~/api/client';
import { answerProof } from '~/api/proof';
import { CodeInput } from '~/components/CodeInput';
import { FormDialog } from '~/components/FormDialog';

/** The form of the dialog: the password and, of an account with a second factor, a code. */
export default function ProofForm({ email, needsCode }: { email: string; needsCode: boolean }) {
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  return (
    <FormDialog
      title="Confirm that it is you"
      lead="This change is dangerous, and you signed in more than 10 minutes ago."
      verb="Continue"
      size={400}
      onClose={() => answerProof(false)}
      onSaved={() => answerProof(true)}
      save={() =>
        api.POST('/api/v1/session/confirm', {
          body: { password, ...(needsCode && { code }) },
        })
      }
    >
      {(wrong) => (
        <>
          <input type="hidden" autoComplete="username" value={email} readOnly />
          <PasswordInput
            label="Your password"
            autoComplete="current-password"
            data-autofocus
            required
            withAsterisk={false}
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
