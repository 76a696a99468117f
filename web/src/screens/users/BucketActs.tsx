import { Button, Group, NumberInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { sentence } from '~/api/problem';
import type { Bucket } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Dialog } from '~/components/Dialog';
import { done } from '~/components/toast';
import { exactNumber, plural } from '~/domain/format';
import { roomOf } from '~/domain/lent';
import { ruleTitle } from '~/domain/rule';

interface Props {
  tenant: string;
  user: string;
  bucket: Bucket;
  onClose: () => void;
}

/** Refills a bucket. */
export function Reset({ tenant, user, bucket, onClose }: Props) {
  const queries = useQueryClient();
  const { bucket_key, lent } = bucket;
  async function reset() {
    const change = await body(
      api.POST('/api/v1/tenants/{tenant}/users/{user_id}/buckets/reset', {
        params: { path: { tenant, user_id: user } },
        body: { bucket_key },
      }),
    );
    await changed(queries, tenant, 'bucket');
    done(`Bucket refilled to ${plural(Math.floor(change.tokens_after), 'token')}`);
  }
  return (
    <ConfirmAction
      opened
      onClose={onClose}
      title="Refill this bucket?"
      effect={
        <>
          User {user} can use all {exactNumber(Math.floor(roomOf(bucket)))} tokens of{' '}
          <em>{ruleTitle(bucket)}</em> at once
          {lent && `, beside ${exactNumber(Math.ceil(lent.tokens))} that are lent to processes`}. The limit
          does not change.
        </>
      }
      verb="Refill"
      action={reset}
    />
  );
}

/** A random id. crypto.randomUUID exists only on HTTPS pages. */
function randomID() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, '0'),
  ).join('');
}

/** Adds tokens to a bucket or takes some away. */
export function Credit({ tenant, user, bucket, onClose }: Props) {
  const queries = useQueryClient();
  const { bucket_key, burst_capacity, tokens: held } = bucket;
  const [tokens, setTokens] = useState<number | string>(Math.max(1, Math.round(burst_capacity / 2)));
  const [dialog] = useState(randomID);
  const amount = typeof tokens === 'number' ? tokens : Number.NaN;
  const most = roomOf(bucket);
  const after = Math.max(0, Math.min(most, held + amount));

  const credit = useMutation({
    mutationFn: () =>
      body(
        api.POST('/api/v1/tenants/{tenant}/users/{user_id}/buckets/credit', {
          // The key makes a retry after a lost response safe.
          params: {
            path: { tenant, user_id: user },
            header: { 'Idempotency-Key': `${dialog}_${Math.round(amount * 1e6)}` },
          },
          body: { bucket_key, tokens: amount },
        }),
      ),
    onSuccess: async ({ tokens_after }) => {
      await changed(queries, tenant, 'bucket');
      done(`Bucket set to ${plural(Math.floor(tokens_after), 'token')}`);
      onClose();
    },
  });

  return (
    <Dialog onClose={onClose} title="Adjust tokens" pending={credit.isPending}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          credit.mutate();
        }}
      >
        <NumberInput
          label="Tokens"
          description="A negative number takes tokens away."
          value={tokens}
          onChange={setTokens}
          decimalScale={6}
          min={-1e9}
          max={1e9}
          data-autofocus
          error={credit.isError && sentence(credit.error)}
        />
        {Number.isFinite(amount) && (
          <p className="soft" style={{ marginTop: 12 }}>
            The bucket of <em>{ruleTitle(bucket)}</em> will hold about {exactNumber(Math.round(after))} of{' '}
            {exactNumber(burst_capacity)} tokens
            {held + amount > most &&
              (bucket.lent ? ', its maximum beside what is lent to processes' : ', its maximum')}
            .
          </p>
        )}
        <Group justify="flex-end" mt="lg">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            type="submit"
            loading={credit.isPending}
            disabled={!Number.isFinite(amount) || amount === 0}
          >
            {amount < 0 ? 'Take tokens' : 'Add tokens'}
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
