import { Button, PasswordInput, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import type { InvitationOffer } from '~/api/types';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { SignInAddress } from '~/components/SignInAddress';
import styles from './Frame.module.css';
import { useWelcome } from './welcome';

export function AcceptAsNew({ token, offer }: { token: string; offer: InvitationOffer }) {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const welcome = useWelcome(offer.tenant.slug);
  const accept = useMutation({
    mutationFn: () => api.post('/api/v1/invitations/accept', { body: { token, name, password } }),
    onSuccess: welcome,
  });
  const { wrong, rest } = fieldErrors(accept.error);
  return (
    <form className={styles.form} onSubmit={submits(() => accept.mutate())}>
      <input type="hidden" autoComplete="username" value={offer.email} readOnly />
      <TextInput
        label="Your name"
        autoComplete="name"
        autoFocus
        required
        value={name}
        error={wrong('/name')}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      <PasswordInput
        label="Choose a password"
        description="At least 10 characters"
        autoComplete="new-password"
        required
        value={password}
        error={wrong('/password')}
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
      {!offer.proves && (
        <p className="soft">
          Keep your sign-in address:
          <SignInAddress tenant={offer.tenant.slug} />
          {offer.email} is not verified, so the account is for {offer.tenant.name} only.
        </p>
      )}
      <FormError>{rest()}</FormError>
      <Button type="submit" fullWidth loading={accept.isPending}>
        Create account and join
      </Button>
      <p className="soft">
        Already have an account?{' '}
        <Link to="/sign-in/$slug" params={{ slug: offer.tenant.slug }} search={{ next: '/invitation' }} hash={token}>
          Sign in first
        </Link>
        .
      </p>
    </form>
  );
}
