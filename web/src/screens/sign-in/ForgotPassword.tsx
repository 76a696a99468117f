import { Button, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link, useSearch } from '@tanstack/react-router';
import { api } from '~/api/client';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { useFields } from '~/components/useFields';
import { Frame } from './Frame';
import styles from './Frame.module.css';

export default function ForgotPassword() {
  const { values, field } = useFields({ email: '' });
  const { tenant } = useSearch({ strict: false }) as { tenant?: string };
  const ask = useMutation({ mutationFn: () => api.post('/api/v1/password-reset', { body: values }) });
  const { wrong, rest } = fieldErrors(ask.error);
  if (ask.isSuccess) {
    return (
      <Frame
        title="Look into your mailbox"
        lead={`If ${values.email} has an account and is verified, a link is on its way. It works for an hour.`}
      >
        <p>
          <BackToSignIn tenant={tenant} />
        </p>
      </Frame>
    );
  }
  return (
    <Frame title="Reset your password" lead="If you joined by a link, ask an owner to invite you again.">
      <form className={styles.form} onSubmit={submits(() => ask.mutate())}>
        <TextInput label="E-mail" type="email" autoComplete="username" autoFocus required {...field('email', wrong)} />
        <FormError>{rest()}</FormError>
        <Button type="submit" fullWidth loading={ask.isPending}>
          Send link
        </Button>
        <p>
          <BackToSignIn tenant={tenant} />
        </p>
      </form>
    </Frame>
  );
}

function BackToSignIn({ tenant }: { tenant?: string }) {
  return tenant ? (
    <Link to="/sign-in/$slug" params={{ slug: tenant }}>
      Back to sign-in
    </Link>
  ) : (
    <Link to="/sign-in">Back to sign-in</Link>
  );
}
