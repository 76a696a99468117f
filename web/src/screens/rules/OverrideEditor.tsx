import { Button, Chip, Group, NativeSelect, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { isStatus, ProblemError, sentence } from '~/api/problem';
import { tenantKey } from '~/api/queries';
import type { Override, OverrideLimit, Rule } from '~/api/types';
import { BurstInput } from '~/components/BurstInput';
import { ConflictDialog } from '~/components/ConflictDialog';
import { RateInput } from '~/components/RateInput';
import { done } from '~/components/toast';
import { type Expiry, expiresAt, lengths } from '~/domain/expiry';
import { type Limit, limitProblems, limitSentence, times } from '~/domain/rate';
import styles from './OverrideEditor.module.css';
import {
  beginOverride,
  endInWords,
  type OverrideDraft,
  overrideBody,
  overrideVersions,
  withoutEffect,
} from './overrideDraft';

interface Props {
  tenant: string;
  rule: Rule;
  /** Whom it is for, with their plan where it is known; left out, the form asks. */
  user?: { user_id: string; plan: string | null };
  /** What is saved. */
  saved: Override | undefined;
  onClose: () => void;
}

/** One user's own limit for one rule, with a reason, until some time. */
export function OverrideEditor({ tenant, rule, user, saved, onClose }: Props) {
  const [draft, setDraft] = useState<OverrideDraft>(() => beginOverride(rule, saved));
  const [typedUser, setTypedUser] = useState('');
  const [basis, setBasis] = useState(saved);
  // undefined: no race was lost. null: they removed it.
  const [theirs, setTheirs] = useState<Override | null>();
  const queries = useQueryClient();
  const userId = saved?.user_id ?? user?.user_id ?? typedUser.trim();
  const problems = limitProblems(draft.limit);
  const end = expiresAt(draft.expiry, Date.now());
  const change = (part: Partial<OverrideDraft>) => setDraft((old) => ({ ...old, ...part }));

  const save = useMutation({
    mutationFn: (over: Override | undefined) => put(tenant, userId, rule.rule_id, over, overrideBody(draft)),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
      done(`Override saved. User ${userId}: ${limitSentence(draft.limit)}`);
      onClose();
    },
    onError: async (error) => {
      if (isStatus(error, 412)) setTheirs((await read(tenant, userId, rule.rule_id)) ?? null);
    },
  });
  const field = (pointer: string) =>
    save.error instanceof ProblemError ? save.error.field(pointer) : undefined;
  const other =
    save.isError &&
    !isStatus(save.error, 412) &&
    !(save.error instanceof ProblemError && save.error.document.errors);
  const ready =
    !problems.rate && !problems.burst && draft.reason.trim() !== '' && end !== undefined && userId !== '';

  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) save.mutate(basis);
      }}
    >
      {!saved && !user && (
        <TextInput
          label="User"
          required
          withAsterisk={false}
          data-autofocus
          value={typedUser}
          error={field('/user_id')}
          onChange={(event) => setTypedUser(event.currentTarget.value)}
        />
      )}
      <Times rule={rule} limit={draft.limit} onChange={(limit) => change({ limit })} />
      <div className={styles.limit}>
        <RateInput
          label="Rate"
          value={draft.limit}
          error={problems.rate ?? field('/rate_per_second')}
          onChange={(rate) => change({ limit: { ...draft.limit, ...rate } })}
        />
        <BurstInput
          label="Burst"
          value={draft.limit.burst_capacity}
          error={problems.burst ?? field('/burst_capacity')}
          onChange={(burst_capacity) => change({ limit: { ...draft.limit, burst_capacity } })}
        />
      </div>
      <TextInput
        label="Reason"
        description="For whoever asks later: a ticket, a name, a migration."
        value={draft.reason}
        maxLength={500}
        required
        withAsterisk={false}
        data-autofocus={saved || user ? true : undefined}
        error={field('/reason')}
        onChange={(event) => change({ reason: event.currentTarget.value })}
      />
      <Ends expiry={draft.expiry} error={field('/expires_at')} onChange={(expiry) => change({ expiry })} />
      {ready && <Effect rule={rule} user={user} userId={userId} limit={draft.limit} end={end} />}
      {other && (
        <p role="alert" className={styles.error}>
          {sentence(save.error)}
        </p>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" loading={save.isPending} disabled={!ready}>
          Save override
        </Button>
      </Group>
      {theirs !== undefined && (
        <ConflictDialog
          opened
          what={`the override of user ${userId}`}
          versions={overrideVersions(rule, draft, theirs)}
          onKeepMine={() => {
            setBasis(theirs ?? undefined);
            setTheirs(undefined);
            save.mutate(theirs ?? undefined);
          }}
          onTakeTheirs={() => {
            queries.invalidateQueries({ queryKey: tenantKey(tenant) });
            onClose();
          }}
          onClose={() => setTheirs(undefined)}
        />
      )}
    </form>
  );
}

interface EffectProps {
  rule: Rule;
  user: Props['user'];
  userId: string;
  limit: Limit;
  end: string | null;
}

/** What saving does, before it is done. */
function Effect({ rule, user, userId, limit, end }: EffectProps) {
  const reservation = withoutEffect(rule, user);
  return (
    <div className={styles.effect}>
      <p>
        User {userId} gets <strong>{limitSentence(limit)}</strong> instead of {limitSentence(rule)}
        {end === null ? ', until somebody ends it.' : `, until ${endInWords(end)}.`} It is in force within 2
        s.
      </p>
      {reservation && <p className={styles.warning}>{reservation}</p>}
    </div>
  );
}

/** What an override usually is: so many times the rule's limit. */
function Times({ rule, limit, onChange }: { rule: Rule; limit: Limit; onChange: (limit: Limit) => void }) {
  const factors = [2, 5, 10];
  const chosen = factors.find((factor) => same(times(rule, factor), limit));
  return (
    <Chip.Group
      value={chosen === undefined ? '' : String(chosen)}
      onChange={(factor) => onChange(times(rule, Number(factor)))}
    >
      <fieldset className={styles.times}>
        <legend className="aside">Times the rule’s limit</legend>
        {factors.map((factor) => (
          <Chip key={factor} value={String(factor)} variant="light" size="xs">
            {factor} times
          </Chip>
        ))}
        <span className="soft">the rule’s {limitSentence(rule)}</span>
      </fieldset>
    </Chip.Group>
  );
}

function same(a: Limit, b: Limit): boolean {
  return a.rate_per_second === b.rate_per_second && a.burst_capacity === b.burst_capacity;
}

interface EndsProps {
  expiry: Expiry;
  error: string | undefined;
  onChange: (expiry: Expiry) => void;
}

function Ends({ expiry, error, onChange }: EndsProps) {
  const choices = lengths.map(({ value, label }) => ({ value, label }));
  const { saved } = expiry;
  if (saved !== undefined) {
    choices.unshift({
      value: 'same',
      label: `as it is: ${saved ? `until ${endInWords(saved)}` : 'without end'}`,
    });
  }
  return (
    <div className={styles.ends}>
      <NativeSelect
        label="Duration"
        value={expiry.length}
        data={choices}
        error={expiry.length === 'until' ? undefined : error}
        onChange={(event) => onChange({ ...expiry, length: event.currentTarget.value })}
      />
      {expiry.length === 'until' && (
        <TextInput
          type="datetime-local"
          label="Until"
          value={expiry.until}
          error={error}
          onChange={(event) => onChange({ ...expiry, until: event.currentTarget.value })}
        />
      )}
    </div>
  );
}

/** The override as it is saved now, if there is one. */
async function read(tenant: string, user: string, rule: number): Promise<Override | undefined> {
  const path = { tenant, rule_id: rule, user_id: user };
  try {
    return await body(
      api.GET('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', { params: { path } }),
    );
  } catch (error) {
    if (isStatus(error, 404)) return undefined;
    throw error;
  }
}

function put(tenant: string, user: string, rule: number, over: Override | undefined, limit: OverrideLimit) {
  const header = over ? ifMatch(etagOf(over)) : { 'If-None-Match': '*' as const };
  return body(
    api.PUT('/api/v1/tenants/{tenant}/rules/{rule_id}/overrides/{user_id}', {
      params: { path: { tenant, rule_id: rule, user_id: user }, header },
      body: limit,
    }),
  );
}
