import { Button, Group, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, body } from '~/api/client';
import { sentence } from '~/api/problem';
import { Dialog } from '~/components/Dialog';
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
  const erase = useMutation({
    mutationFn: () =>
      body(
        api.POST('/api/v1/tenants/{tenant}/users/{user_id}/erase', {
          params: { path: { tenant, user_id: user } },
          body: { confirm: typed },
        }),
      ),
    onSuccess: () =>
      Promise.all([
        changed(queries, tenant, 'user', 'override', 'bucket'),
        queries.invalidateQueries(usageQuery(tenant, user)),
      ]),
  });
  const receipt = erase.data;

  if (receipt) {
    const left = receipt.rules.length;
    return (
      <Dialog onClose={onClose} title="User erased" keepOpen>
        <div className={styles.form}>
          <p>
            Receipt <code>{receipt.receipt_id}</code>. The audit log has it too.
          </p>
          <p>
            Deleted: {receipt.assignments} plan assignments, {receipt.overrides} overrides,{' '}
            {receipt.crossings} crossings of quotas. Made anonymous: {receipt.violations} violations,{' '}
            {receipt.counts} counts, {receipt.deliveries} webhooks, {receipt.audit_entries} audit entries.
            Filled: {receipt.buckets} buckets.
          </p>
          {left > 0 && (
            <p>
              {left === 1 ? 'A rule names' : `${left} rules name`} this user in the pattern and stay:{' '}
              {receipt.rules.join(', ')}.
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
    <Dialog onClose={onClose} title={`Erase user ${user}?`} pending={erase.isPending}>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          erase.mutate();
        }}
      >
        <p className="soft">
          Deletes the plan assignment and all overrides, and removes the id and addresses from violations,
          counts, alerts and the audit log. Buckets are filled. This cannot be undone. Later requests with
          this id are recorded again.
        </p>
        <TextInput
          label={`Type ${user} to confirm`}
          value={typed}
          data-autofocus
          autoComplete="off"
          onChange={(event) => setTyped(event.currentTarget.value)}
        />
        {erase.isError && (
          <p role="alert" style={{ color: 'var(--denied)' }}>
            {sentence(erase.error)}
          </p>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" color="red" disabled={typed !== user} loading={erase.isPending}>
            Erase user
          </Button>
        </Group>
      </form>
    </Dialog>
  );
}
