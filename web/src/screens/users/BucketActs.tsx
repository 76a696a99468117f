import { NumberInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, randomID } from '~/api/client';
import type { Bucket } from '~/api/types';
import { ConfirmAction } from '~/components/ConfirmAction';
import { FormDialog } from '~/components/FormDialog';
import { done } from '~/components/toast';
import { exactNumber, plural } from '~/domain/format';
import { roomOf } from '~/domain/lent';
import { exactAmount, heldUnit, meterUnit } from '~/domain/meter';
import { upper } from '~/domain/pattern';
import { ruleTitle } from '~/domain/rule';

interface Props {
  tenant: string;
  user: string;
  bucket: Bucket;
  onClose: () => void;
}

export function Reset({ tenant, user, bucket, onClose }: Props) {
  const queries = useQueryClient();
  const { bucket_key, lent } = bucket;
  async function reset() {
    const change = await api.post('/api/v1/tenants/{tenant}/users/{user_id}/buckets/reset', {
      tenant,
      user_id: user,
      body: { bucket_key },
    });
    await changed(queries, tenant, 'bucket');
    done(`Bucket refilled to ${heldText(change.tokens_after, bucket)}`);
  }
  return (
    <ConfirmAction
      opened
      onClose={onClose}
      title="Refill this bucket?"
      effect={
        <>
          User {user} can use all {exactNumber(Math.floor(roomOf(bucket)))} {heldUnit(bucket.meter)} of{' '}
          <em>{ruleTitle(bucket)}</em> at once
          {lent && `, beside ${exactNumber(Math.ceil(lent.tokens))} that are lent to processes`}. The limit does not
          change.
        </>
      }
      verb="Refill"
      action={reset}
    />
  );
}

export function Credit({ tenant, user, bucket, onClose }: Props) {
  const queries = useQueryClient();
  const { bucket_key, burst_capacity, tokens: held } = bucket;
  const [dialog] = useState(randomID);
  const [tokens, setTokens] = useState<number | string>(Math.max(1, Math.round(burst_capacity / 2)));
  const amount = typeof tokens === 'number' ? tokens : Number.NaN;
  const most = roomOf(bucket);
  const after = Math.max(0, Math.min(most, held + amount));

  async function credit() {
    const { tokens_after } = await api.post('/api/v1/tenants/{tenant}/users/{user_id}/buckets/credit', {
      tenant,
      user_id: user,
      headers: { 'Idempotency-Key': `${dialog}_${Math.round(amount * 1e6)}` },
      body: { bucket_key, tokens: amount },
    });
    await changed(queries, tenant, 'bucket');
    done(`Bucket set to ${heldText(tokens_after, bucket)}`);
  }

  return (
    <FormDialog
      onClose={onClose}
      title={`Adjust ${heldUnit(bucket.meter)}`}
      verb={`${amount < 0 ? 'Take' : 'Add'} ${heldUnit(bucket.meter)}`}
      disabled={!Number.isFinite(amount) || amount === 0}
      save={credit}
    >
      {(wrong) => (
        <>
          <NumberInput
            label={upper(heldUnit(bucket.meter))}
            description="A negative number takes some away."
            value={tokens}
            onChange={setTokens}
            decimalScale={6}
            min={-1e9}
            max={1e9}
            data-autofocus
            error={wrong('/tokens')}
          />
          {Number.isFinite(amount) && (
            <p className="soft">
              The bucket of <em>{ruleTitle(bucket)}</em> will hold about {exactNumber(Math.round(after))} of{' '}
              {exactNumber(burst_capacity)} {heldUnit(bucket.meter)}
              {held + amount > most &&
                (bucket.lent ? ', its maximum beside what is lent to processes' : ', its maximum')}
              .
            </p>
          )}
        </>
      )}
    </FormDialog>
  );
}

function heldText(held: number, { meter }: Bucket): string {
  return meterUnit(meter) ? exactAmount(held, meter) : plural(Math.floor(held), 'token');
}
