import { Button } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { sessionKey } from '~/api/queries';
import type { InvitationOffer, Session } from '~/api/types';
import { FormError, fieldErrors } from '~/components/FormDialog';
import styles from './Frame.module.css';
import { useSignedIn } from './signedIn';

interface Props {
  token: string;
  offer: InvitationOffer;
  session: Session;
}

export function AcceptSignedIn({ token, offer, session: { account, memberships } }: Props) {
  const queries = useQueryClient();
  const welcome = useSignedIn(`/t/${offer.tenant.slug}/overview`, offer.tenant.slug);
  const accept = useMutation({
    mutationFn: () => api.post('/api/v1/invitations/accept', { body: { token } }),
    onSuccess: welcome,
  });
  const leave = useMutation({
    mutationFn: () => api.delete('/api/v1/session'),
    onSuccess: () => queries.setQueryData(sessionKey, null),
  });
  // An account that joined by a link is for its tenant, unless this invitation came by mail, which verifies its
  // address.
  const home = memberships[0]?.tenant;
  const isElsewhere = !account.proven && !offer.proves && home?.slug !== offer.tenant.slug;
  const mine = account.email.toLowerCase() === offer.email.toLowerCase();
  return (
    <div className={styles.form}>
      <p>
        You are signed in as <strong>{account.email}</strong>
        {!mine && ', but the invitation is for another address. Sign out to accept it'}
        {mine &&
          isElsewhere &&
          `, with an account for ${home?.name ?? 'another tenant'} only. Sign out to join with another account`}
        .
      </p>
      <FormError>{fieldErrors(accept.error ?? leave.error).rest()}</FormError>
      {mine && !isElsewhere ? (
        <Button fullWidth loading={accept.isPending || accept.isSuccess} onClick={() => accept.mutate()}>
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
