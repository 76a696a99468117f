import { Button, Group, Modal, NativeSelect, NumberInput, Textarea, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, body, etagOf } from '~/api/client';
import { isStatus, ProblemError, sentence } from '~/api/problem';
import { tenantKey } from '~/api/queries';
import type { Override, Rule } from '~/api/types';
import { RateInput } from '~/components/RateInput';
import { done } from '~/components/toast';
import { exactTime } from '~/domain/format';
import { type Limit, limitProblems, limitSentence } from '~/domain/rate';
import styles from './Rules.module.css';

interface Props {
  tenant: string;
  rule: Rule;
  /** null: a new one. */
  override: Override | null;
  /** Whom a new one is for, where that is known. */
  userId?: string;
  onClose: () => void;
}

const day = 86_400_000;
const periods = [
  { value: '1', label: 'in a day' },
  { value: '7', label: 'in a week' },
  { value: '30', label: 'in 30 days' },
  { value: '90', label: 'in 90 days' },
  { value: 'never', label: 'never' },
];

/** Gives a user an own limit, with a reason and an end. */
export function OverrideForm({ tenant, rule, override, userId = '', onClose }: Props) {
  const queries = useQueryClient();
  const [user, setUser] = useState(override?.user_id ?? userId);
  const [limit, setLimit] = useState<Limit>(() => override ?? doubled(rule));
  const [reason, setReason] = useState(override?.reason ?? '');
  const [ends, setEnds] = useState(override ? 'same' : '7');
  const wrong = limitProblems(limit);
  const path = { tenant, rule_id: rule.rule_id, user_id: user };

  const save = useMutation({
    mutationFn: () =>
      body(
        api.PUT('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
          params: { path, header: override ? { 'If-Match': etagOf(override) } : { 'If-None-Match': '*' } },
          body: {
            rate_per_second: limit.rate_per_second,
            rate_unit: limit.rate_unit,
            burst_capacity: limit.burst_capacity,
            reason: reason.trim(),
            expires_at: endOf(ends, override),
          },
        }),
      ),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
      done(`User ${user}: ${limitSentence(limit)}`);
      onClose();
    },
  });
  const problem = (pointer: string) =>
    save.error instanceof ProblemError ? save.error.field(pointer) : undefined;

  return (
    <Modal opened onClose={onClose} title={override ? `Override of user ${user}` : 'New override'}>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <p className="soft">The rule allows {limitSentence(rule)}.</p>
        {!override && (
          <TextInput
            label="User"
            required
            withAsterisk={false}
            data-autofocus
            value={user}
            error={problem('/user_id')}
            onChange={(event) => setUser(event.currentTarget.value)}
          />
        )}
        <div className={styles.pair}>
          <RateInput
            label="Rate"
            value={limit}
            error={problem('/rate_per_second') ?? wrong.rate}
            onChange={(rate) => setLimit({ ...limit, ...rate })}
          />
          <NumberInput
            label="Burst"
            value={Number.isNaN(limit.burst_capacity) ? '' : limit.burst_capacity}
            min={1}
            allowDecimal={false}
            clampBehavior="none"
            hideControls
            thousandSeparator=","
            error={problem('/burst_capacity') ?? wrong.burst}
            onChange={(value) =>
              setLimit({ ...limit, burst_capacity: value === '' ? Number.NaN : Number(value) })
            }
          />
        </div>
        <Textarea
          label="Because"
          placeholder="Migration week"
          required
          withAsterisk={false}
          autosize
          value={reason}
          error={problem('/reason')}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
        <NativeSelect
          label="It ends"
          value={ends}
          error={problem('/expires_at')}
          data={override ? [{ value: 'same', label: sameEnd(override) }, ...periods] : periods}
          onChange={(event) => setEnds(event.currentTarget.value)}
        />
        {save.isError && !(save.error instanceof ProblemError && save.error.document.errors) && (
          <p role="alert" className={styles.error}>
            {message(save.error, override)}
          </p>
        )}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" loading={save.isPending} disabled={!!(wrong.rate || wrong.burst)}>
            {override ? 'Save' : 'Give limit'}
          </Button>
        </Group>
      </form>
    </Modal>
  );
}

function doubled(rule: Rule): Limit {
  return {
    rate_per_second: rule.rate_per_second * 2,
    rate_unit: rule.rate_unit,
    burst_capacity: rule.burst_capacity * 2,
  };
}

function endOf(ends: string, override: Override | null): string | null {
  if (ends === 'same') return override?.expires_at ?? null;
  if (ends === 'never') return null;
  return new Date(Date.now() + Number(ends) * day).toISOString();
}

function sameEnd({ expires_at }: Override): string {
  return expires_at ? `as it was: ${exactTime(Date.parse(expires_at))}` : 'as it was: never';
}

function message(error: unknown, override: Override | null): string {
  if (!isStatus(error, 412)) return sentence(error);
  return override
    ? 'Somebody changed this override while you were editing. Close this, look at theirs, and decide again.'
    : 'This user has an override already. Change that one.';
}
