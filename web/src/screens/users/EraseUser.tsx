import { Button, Group, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import type { Erasure } from '~/api/types';
import { Dialog } from '~/components/Dialog';
import { FormDialog } from '~/components/FormDialog';
import styles from './Users.module.css';
import { usageQuery } from './usage';

interface Props {
  tenant: string;
  user: string;
  onClose: () => void;
}

/** Erases a user after the id was typed, and shows the receipt. */
export function EraseUser({ tenant, user, onClose }: Props) {
  const [typed, setTyped] = useState('');
  const queries = useQueryClient();
  const [receipt, setReceipt] = useState<Erasure | null>(null);

  async function erase() {
    const made = await body(
      api.POST('/api/v1/tenants/{tenant}/users/{user_id}/erase', {
        params: { path: { tenant, user_id: user } },
        body: { confirm: typed },
      }),
    );
    setReceipt(made);
    await changed(queries, tenant, 'user', 'override', 'bucket');
    await queries.invalidateQueries(usageQuery(tenant, user));
  }

  if (receipt) {
    const left = receipt.rules.length;
    return (
      <Dialog onClose={onClose} title="User erased" keepOpen>
        <div className={styles.form}>
          <p>
            Receipt <code>{receipt.receipt_id}</code>. The audit log has it too.
          </p>
          <p>
            Deleted: {receipt.assignments} plan assignments, {receipt.overrides} overrides, {receipt.crossings}{' '}
            crossings of quotas. Made anonymous: {receipt.violations} violations, {receipt.counts} counts,{' '}
            {receipt.deliveries} webhooks, {receipt.audit_entries} audit entries. Filled: {receipt.buckets} buckets.
          </p>
          {left > 0 && (
            <p>
              Kept, because {left === 1 ? 'its pattern names' : 'their patterns name'} this user:{' '}
              {left === 1 ? 'rule' : 'rules'} {receipt.rules.join(', ')}.
            </p>
          )}
          <Group justify="flex-end">
            <Button onClick={onClose}>Close</Button>
          </Group>
        </div>
      </Dialog>
    );
  }
  return (
    <FormDialog
      onClose={onClose}
      title={`Erase user ${user}?`}
      lead="Removes the id from everything recorded, with its plan and overrides. This cannot be undone."
      verb="Erase user"
      destructive
      disabled={typed !== user}
      onSaved={() => undefined}
      save={erase}
    >
      <TextInput
        label={`Type ${user} to confirm`}
        value={typed}
        data-autofocus
        autoComplete="off"
        onChange={(event) => setTyped(event.currentTarget.value)}
      />
    </FormDialog>
  );
}
