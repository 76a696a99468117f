import { Button, PasswordInput, TextInput } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api } from '~/api/client';
import type { InvitationOffer } from '~/api/types';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { SignInAddress } from '~/components/SignInAddress';
import { useFields } from '~/components/useFields';
import styles from './Frame.module.css';
import { useSignedIn } from './signedIn';

export function AcceptAsNew({ token, offer }: { token: string; offer: InvitationOffer }) {
  const { values, field } = useFields({ name: '', password: '' });
  const welcome = useSignedIn(`/t/${offer.tenant.slug}/overview`, offer.tenant.slug);
  const accept = useMutation({
    mutationFn: () => api.post('/api/v1/invitations/accept', { body: { token, ...values } }),
    onSuccess: welcome,
  });
  const { wrong, rest } = fieldErrors(accept.error);
  return (
    <form className={styles.form} onSubmit={submits(() => accept.mutate())}>
      <input type="hidden" autoComplete="username" value={offer.email} readOnly />
      <TextInput label="Your name" autoComplete="name" autoFocus required {...field('name', wrong)} />
      <PasswordInput
        label="Choose a password"
        description="At least 10 characters"
        autoComplete="new-password"
        required
        {...field('password', wrong)}
      />
      {!offer.proves && (
        <p className="soft">
          Keep your sign-in address:
          <SignInAddress tenant={offer.tenant.slug} />
          {offer.email} is not verified, so the account is for {offer.tenant.name} only.
        </p>
      )}
      <FormError>{rest()}</FormError>
      <Button type="submit" fullWidth loading={accept.isPending || accept.isSuccess}>
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
