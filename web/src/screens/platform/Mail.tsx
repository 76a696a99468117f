import { Button } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { signInOptionsQuery } from '~/api/queries';
import type { Mail as Message } from '~/api/types';
import { type Column, DataTable } from '~/components/DataTable';
import { MailOutcome } from '~/components/MailOutcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { ShowMore } from '~/components/ShowMore';
import { EmptyState, NoPermission } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { useSession } from '~/session';

const pageSize = 100;
const mailKey = ['mail'] as const;

export default function Mail() {
  const { account } = useSession();
  if (!account.platform_admin) {
    return (
      <Page title="Mail">
        <NoPermission need="platform">This requires a platform admin.</NoPermission>
      </Page>
    );
  }
  return <MailList />;
}

const kinds: Record<string, string> = {
  invitation: 'Invitation',
  password_reset: 'Password reset',
  address_proof: 'Verification of an address',
  notice: 'Notice',
  keys_expire: 'Keys that expire',
  keys_left: 'Keys of a leaver',
  test: 'Test',
};

const columns: Column<Message>[] = [
  { key: 'to', header: 'To', render: ({ to }) => <strong>{to}</strong> },
  { key: 'kind', header: 'Kind', width: 150, render: ({ kind }) => kinds[kind] ?? kind },
  { key: 'state', header: 'State', render: (mail) => <MailOutcome mail={mail} /> },
  {
    key: 'created',
    header: 'Created',
    width: 120,
    wide: true,
    render: ({ created_at }) => <RelativeTime at={created_at} />,
  },
  {
    key: 'next',
    header: 'Next attempt',
    width: 120,
    wide: true,
    render: ({ next_attempt_at }) => next_attempt_at && <RelativeTime at={next_attempt_at} />,
  },
];

function MailList() {
  const { account } = useSession();
  const queries = useQueryClient();
  const options = useQuery(signInOptionsQuery);
  const mail = useInfiniteQuery({
    queryKey: mailKey,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam: cursor, signal }) => api.get('/api/v1/mail', { limit: pageSize, cursor, signal }),
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: 10_000,
  });
  const test = useMutation({
    mutationFn: () => api.post('/api/v1/mail/test', { body: { to: account.email } }),
    onSuccess: () => done('Test message queued'),
    onError: (error) => failed('Could not queue a test message', error),
    onSettled: () => queries.invalidateQueries({ queryKey: mailKey }),
  });
  return (
    <Page
      title="Mail"
      lead="What Sluice has sent to people in the last 30 days, and what waits."
      actions={
        options.data?.mail && (
          <Button variant="default" loading={test.isPending} onClick={() => test.mutate()}>
            Send me a test message
          </Button>
        )
      }
    >
      <Card flush>
        <Query query={mail}>
          {({ pages }) => {
            const rows = pages.flatMap(({ items }) => items);
            return rows.length === 0 ? (
              <EmptyState title="No mail">
                {options.data?.mail
                  ? 'Invitations and password resets will appear here.'
                  : 'No mail server is configured. Set SLUICE_SMTP_ADDR, so that invitations reach the invitee alone.'}
              </EmptyState>
            ) : (
              <>
                <DataTable label="Mail" columns={columns} rows={rows} rowKey={({ mail_id }) => mail_id} />
                <ShowMore list={mail} rows={rows} noun="message" />
              </>
            );
          }}
        </Query>
      </Card>
    </Page>
  );
}
