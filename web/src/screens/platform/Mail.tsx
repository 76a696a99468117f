import { Button } from '@mantine/core';
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { api } from '~/api/client';
import { pagesQuery, rowsOf } from '~/api/pages';
import { signInOptionsQuery } from '~/api/queries';
import type { Mail as Message } from '~/api/types';
import { timeColumn } from '~/components/columns';
import type { Column } from '~/components/DataTable';
import { ListTable } from '~/components/ListTable';
import { MailOutcome } from '~/components/MailOutcome';
import { Card, Page } from '~/components/Page';
import { EmptyState } from '~/components/states';
import { done, failed } from '~/components/toast';
import { useSession } from '~/session';

const mailKey = ['mail'] as const;

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
  timeColumn('created', 'Created', ({ created_at }) => created_at),
  timeColumn('next', 'Next attempt', ({ next_attempt_at }) => next_attempt_at),
];

export default function Mail() {
  const { account } = useSession();
  const queries = useQueryClient();
  const options = useQuery(signInOptionsQuery);
  const mail = useInfiniteQuery({
    ...pagesQuery(mailKey, (cursor, signal) => api.get('/api/v1/mail', { limit: 100, cursor, signal })),
    select: rowsOf<Message>,
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
      lead="Of the last 30 days"
      actions={
        options.data?.mail && (
          <Button variant="default" loading={test.isPending} onClick={() => test.mutate()}>
            Send me a test message
          </Button>
        )
      }
    >
      <Card flush>
        <ListTable
          list={mail}
          noun="message"
          label="Mail"
          columns={columns}
          rowKey={({ mail_id }) => mail_id}
          none={
            <EmptyState title="No mail">
              {options.data?.mail
                ? 'Invitations and password resets will appear here.'
                : 'No mail server is configured. Set SLUICE_SMTP_ADDR, so that invitations reach the invitee alone.'}
            </EmptyState>
          }
        />
      </Card>
    </Page>
  );
}
