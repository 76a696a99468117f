import { Button, PasswordInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { Card } from '~/components/Page';
import { done } from '~/components/toast';
import { useSession } from '~/session';
import styles from './Profile.module.css';
import { sessionsKey } from './SessionsCard';

export function PasswordCard() {
  const { account, has_password } = useSession();
  const queries = useQueryClient();
  const [now, setNow] = useState('');
  const [next, setNext] = useState('');
  const change = useMutation({
    mutationFn: () => api.put('/api/v1/account/password', { body: { current_password: now, new_password: next } }),
    onSuccess: async () => {
      setNow('');
      setNext('');
      await queries.invalidateQueries({ queryKey: sessionsKey });
      done('Password changed. All other sessions have ended');
    },
  });
  const { wrong, rest } = fieldErrors(change.error);
  if (!has_password) return null;
  return (
    <Card title="Password" lead="A change ends your other sessions.">
      <form className={styles.form} onSubmit={submits(() => change.mutate())}>
        {/* For password managers: whose password it is. */}
        <input type="hidden" autoComplete="username" value={account.email} readOnly />
        <PasswordInput
          label="Current password"
          autoComplete="current-password"
          required
          value={now}
          error={wrong('/current_password')}
          onChange={(event) => setNow(event.currentTarget.value)}
        />
        <PasswordInput
          label="New password"
          description="At least 10 characters"
          autoComplete="new-password"
          required
          value={next}
          error={wrong('/new_password')}
          onChange={(event) => setNext(event.currentTarget.value)}
        />
        <FormError>{rest()}</FormError>
        <div>
          <Button type="submit" variant="default" disabled={!now || !next} loading={change.isPending}>
            Change password
          </Button>
        </div>
      </form>
    </Card>
  );
}
