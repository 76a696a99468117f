import { Button } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useLocation, useNavigate } from '@tanstack/react-router';
import { api } from '~/api/client';
import { sessionKey, sessionQuery } from '~/api/queries';
import { FormError, fieldErrors } from '~/components/FormDialog';
import { LoadingLines } from '~/components/states';
import { done } from '~/components/toast';
import { Frame } from './Frame';
import styles from './Frame.module.css';

export default function ProveAddress() {
  const token = useLocation({ select: ({ hash }) => hash });
  const session = useQuery(sessionQuery);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const prove = useMutation({
    mutationFn: () => api.post('/api/v1/account/proof/finish', { body: { token } }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: sessionKey });
      done('Address verified');
      await navigate({ to: '/profile', hash: '' });
    },
  });
  if (session.data === undefined) return <LoadingLines lines={3} />;
  if (session.data === null) {
    return (
      <Frame
        title="Sign in first"
        lead="Open this link in the browser where you are signed in to the account that asked for it."
      >
        <p>
          <Link to="/sign-in" search={{ next: '/prove-address' }} hash={token}>
            Sign in
          </Link>
        </p>
      </Frame>
    );
  }
  return (
    <Frame
      title="Verify your address"
      lead={`You are signed in as ${session.data.account.email}. Only go on if you asked for this link.`}
    >
      <div className={styles.form}>
        <FormError>{fieldErrors(prove.error).rest()}</FormError>
        <Button fullWidth loading={prove.isPending} disabled={token === ''} onClick={() => prove.mutate()}>
          Verify the address
        </Button>
      </div>
    </Frame>
  );
}
