import { Button } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import { sessionKey } from '~/api/queries';
import type { Account, InvitationOffer } from '~/api/types';
import { FormError, fieldErrors } from '~/components/FormDialog';
import styles from './Frame.module.css';
import { useWelcome } from './welcome';

interface Props {
  token: string;
  offer: InvitationOffer;
  account: Account;
}

/** Accepts an invitation with the current account, if it is for that account. */
export function AcceptSignedIn({ token, offer, account }: Props) {
  const queries = useQueryClient();
  const welcome = useWelcome(offer.tenant.slug);
  const accept = useMutation({
    mutationFn: () => body(api.POST('/api/v1/invitations/accept', { body: { token } })),
    onSuccess: welcome,
  });
  const leave = useMutation({
    mutationFn: () => api.DELETE('/api/v1/session'),
    onSuccess: () => queries.setQueryData(sessionKey, null),
  });
  const mine = account.email.toLowerCase() === offer.email.toLowerCase();
  return (
    <div className={styles.form}>
      {mine ? (
        <p>
          You are signed in as <strong>{account.email}</strong>.
        </p>
      ) : (
        <p>
          You are signed in as <strong>{account.email}</strong>, but the invitation is for another address.
          Sign out to accept it, or ask for an invitation to your own address.
        </p>
      )}
      <FormError>{fieldErrors(accept.error ?? leave.error).rest()}</FormError>
      {mine ? (
        <Button fullWidth loading={accept.isPending} onClick={() => accept.mutate()}>
          Join {offer.tenant.name}
        </Button>
      ) : (
        <Button fullWidth variant="default" loading={leave.isPending} onClick={() => leave.mutate()}>
          Sign out
        </Button>
      )}
    </div>
  );
}
