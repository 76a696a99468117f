import { Button, PasswordInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { Link, useLocation, useNavigate } from '@tanstack/react-router';
import { api } from '~/api/client';
import { isStatus } from '~/api/problem';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { useFields } from '~/components/useFields';
import { Frame } from './Frame';
import styles from './Frame.module.css';

/** A link's token is in the fragment, which browsers send to nobody. */
export default function ResetPassword() {
  const token = useLocation({ select: ({ hash }) => hash });
  const { values, field } = useFields({ password: '' });
  const navigate = useNavigate();
  const queries = useQueryClient();
  const finish = useMutation({
    mutationFn: () => api.post('/api/v1/password-reset/finish', { body: { token, ...values } }),
    onSuccess: async () => {
      queries.clear();
      done('Password changed. All sessions have ended');
      await navigate({ to: '/sign-in', hash: '' });
    },
  });
  const { wrong, rest } = fieldErrors(finish.error);
  if (token === '' || isStatus(finish.error, 404)) {
    return (
      <Frame title="This link is no longer valid" lead="It was used, or is older than an hour.">
        <p>
          <Link to="/forgot-password">Ask for another</Link>
        </p>
      </Frame>
    );
  }
  return (
    <Frame title="Choose a new password" lead="Saving it ends all your sessions.">
      <form className={styles.form} onSubmit={submits(() => finish.mutate())}>
        <PasswordInput
          label="New password"
          description="At least 10 characters"
          autoComplete="new-password"
          autoFocus
          required
          {...field('password', wrong)}
        />
        <FormError>{rest()}</FormError>
        <Button type="submit" fullWidth loading={finish.isPending}>
          Save password
        </Button>
      </form>
    </Frame>
  );
}
