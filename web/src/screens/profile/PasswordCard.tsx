import { Button, PasswordInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { Card } from '~/components/Page';
import { done } from '~/components/toast';
import { useFields } from '~/components/useFields';
import { useSession } from '~/session';
import styles from './Profile.module.css';
import { sessionsKey } from './SessionsCard';

const none = { current_password: '', new_password: '' };

export function PasswordCard() {
  const { account, has_password } = useSession();
  const queries = useQueryClient();
  const { values, field, change: fill } = useFields(none);
  const change = useMutation({
    mutationFn: () => api.put('/api/v1/account/password', { body: values }),
    onSuccess: async () => {
      fill(none);
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
          {...field('current_password', wrong)}
        />
        <PasswordInput
          label="New password"
          description="At least 10 characters"
          autoComplete="new-password"
          required
          {...field('new_password', wrong)}
        />
        <FormError>{rest()}</FormError>
        <div>
          <Button
            type="submit"
            variant="default"
            disabled={!values.current_password || !values.new_password}
            loading={change.isPending}
          >
            Change password
          </Button>
        </div>
      </form>
    </Card>
  );
}
