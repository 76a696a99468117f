import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useLocation } from '@tanstack/react-router';
import { api } from '~/api/client';
import { isStatus, sentence } from '~/api/problem';
import { sessionQuery } from '~/api/queries';
import type { InvitationOffer } from '~/api/types';
import { LoadingLines } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { roleNames } from '~/domain/roles';
import { AcceptAsNew } from './AcceptAsNew';
import { AcceptSignedIn } from './AcceptSignedIn';
import { Frame } from './Frame';

export default function Invitation() {
  const token = useLocation({ select: ({ hash }) => hash });
  const offer = useQuery({
    queryKey: ['invitation', token],
    queryFn: ({ signal }) => api.post('/api/v1/invitations/look', { body: { token }, signal }),
    enabled: token !== '',
    staleTime: Number.POSITIVE_INFINITY,
  });
  const session = useQuery(sessionQuery);

  if (token === '' || isStatus(offer.error, 404)) {
    return (
      <Frame
        title="This invitation is no longer valid"
        lead="It was accepted, revoked, or is older than seven days. Ask the sender for a new one."
      >
        <p>
          <Link to="/sign-in">Sign in</Link> if you are a member already.
        </p>
      </Frame>
    );
  }
  if (offer.isError)
    return (
      <Frame title="Could not load the invitation" lead={sentence(offer.error)}>
        <Button variant="default" onClick={() => offer.refetch()}>
          Try again
        </Button>
      </Frame>
    );
  if (!offer.data || session.data === undefined)
    return (
      <Frame title="Invitation">
        <LoadingLines lines={3} />
      </Frame>
    );
  return (
    <Frame title={`Join ${offer.data.tenant.name}`} lead={<Lead offer={offer.data} />}>
      {session.data ? (
        <AcceptSignedIn token={token} offer={offer.data} session={session.data} />
      ) : (
        <AcceptAsNew token={token} offer={offer.data} />
      )}
    </Frame>
  );
}

function Lead({ offer: { invited_by, email, role, expires_at } }: { offer: InvitationOffer }) {
  return (
    <>
      {invited_by} invites <strong>{email}</strong> as {roleNames[role]}. The invitation expires{' '}
      <RelativeTime at={expires_at} />.
    </>
  );
}
