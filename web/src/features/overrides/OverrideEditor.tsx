import { Button, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { serverNow } from '~/api/clock';
import { isStatus, ProblemError, sentence } from '~/api/problem';
import type { Override, Rule } from '~/api/types';
import { BurstInput } from '~/components/BurstInput';
import { ConflictDialog } from '~/components/ConflictDialog';
import { DialogButtons } from '~/components/DialogButtons';
import { Effect as LimitEffect } from '~/components/Effect';
import { QuotaNote } from '~/components/QuotaNote';
import { RateInput } from '~/components/RateInput';
import { done } from '~/components/toast';
import { algorithms } from '~/domain/algorithm';
import { hasRate, type Limit, limitProblems, limitSentence } from '~/domain/rate';
import {
  amounts,
  beginOverride,
  endInWords,
  type OverrideDraft,
  overrideBody,
  overrideVersions,
  type Subject,
  withoutEffect,
} from './draft';
import { expiresAt } from './expiry';
import styles from './OverrideEditor.module.css';
import { Duration, Multiplier } from './OverrideFields';
import { readOverride, saveOverride } from './queries';

interface Props {
  tenant: string;
  /** The form's, for fields outside of it. */
  id: string;
  rule: Rule;
  /** With an empty id while the dialog asks for it. */
  user: Subject;
  /** Whether the dialog was opened for this user, and does not ask. */
  named: boolean;
  saved: Override | undefined;
  /** Called when the reader turns to the draft. */
  onBegin: () => void;
  onClose: () => void;
}

/** The limit of one user for one rule, with a reason and an optional end. */
export function OverrideEditor({ tenant, id, rule, user, named, saved, onBegin, onClose }: Props) {
  const [draft, setDraft] = useState<OverrideDraft>(() => beginOverride(rule, saved));
  const [basis, setBasis] = useState(saved);
  // undefined: no race was lost. null: they removed the override.
  const [theirs, setTheirs] = useState<Override | null>();
  const queries = useQueryClient();
  const subject = { rule_id: rule.rule_id, user_id: user.user_id };
  const problems = limitProblems(draft.limit);
  const end = expiresAt(draft.expiry, serverNow());
  function change(part: Partial<OverrideDraft>) {
    onBegin(); // Safari does not focus what is clicked
    setDraft((old) => ({ ...old, ...part }));
  }

  const save = useMutation({
    mutationFn: (over: Override | undefined) => saveOverride(tenant, subject, over, overrideBody(draft)),
    onSuccess: async () => {
      await changed(queries, tenant, 'override');
      done(`Override saved. User ${subject.user_id}: ${limitSentence(draft.limit)}`);
      onClose();
    },
    onError: async (error) => {
      if (isStatus(error, 412)) setTheirs((await readOverride(tenant, subject)) ?? null);
    },
  });
  const field = (pointer: string) =>
    save.error instanceof ProblemError ? save.error.field(pointer) : undefined;
  const isFieldError = save.error instanceof ProblemError && save.error.document.errors;
  const otherError = save.isError && !isStatus(save.error, 412) && !isFieldError;
  const ready = !problems.rate && !problems.burst && end !== undefined && subject.user_id !== '';

  return (
    <form
      id={id}
      className={styles.form}
      onFocus={onBegin}
      onSubmit={(event) => {
        event.preventDefault();
        // The browser asks for what is required; these say themselves what is wrong.
        if (ready) save.mutate(basis);
        else event.currentTarget.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
      }}
    >
      {!saved && <QuotaNote tenant={tenant} thing="overrides" />}
      <Multiplier rule={rule} limit={draft.limit} onChange={(limit) => change({ limit })} />
      <div className={styles.limit}>
        {hasRate(rule.algorithm) && (
          <RateInput
            label="Rate"
            value={draft.limit}
            error={problems.rate ?? field('/rate_per_second')}
            onChange={(rate) => change({ limit: { ...draft.limit, ...rate } })}
          />
        )}
        <BurstInput
          label={algorithms[rule.algorithm].burst}
          value={draft.limit.burst_capacity}
          error={problems.burst ?? field('/burst_capacity')}
          onChange={(burst_capacity) => change({ limit: { ...draft.limit, burst_capacity } })}
        />
      </div>
      <TextInput
        label="Reason"
        description="A ticket, a name, a migration"
        value={draft.reason}
        maxLength={500}
        required
        data-autofocus={named || undefined}
        error={field('/reason')}
        onChange={(event) => change({ reason: event.currentTarget.value })}
      />
      <Duration
        expiry={draft.expiry}
        error={field('/expires_at')}
        onChange={(expiry) => change({ expiry })}
      />
      {ready && <Effect rule={rule} user={user} limit={draft.limit} end={end} />}
      {!problems.rate && !problems.burst && subject.user_id !== '' && (
        <LimitEffect tenant={tenant} question={{ override: { ...subject, ...amounts(draft.limit) } }} />
      )}
      {(otherError || field('/user_id')) && (
        <p role="alert" className={styles.error}>
          {field('/user_id') ? `User: ${field('/user_id')}` : sentence(save.error)}
        </p>
      )}
      <DialogButtons>
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" loading={save.isPending}>
          Save override
        </Button>
      </DialogButtons>
      {theirs !== undefined && (
        <ConflictDialog
          opened
          what={`the override of user ${subject.user_id}`}
          versions={overrideVersions(rule, draft, theirs)}
          onKeepMine={() => {
            setBasis(theirs ?? undefined);
            setTheirs(undefined);
            save.mutate(theirs ?? undefined);
          }}
          onTakeTheirs={() => {
            changed(queries, tenant, 'override');
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
  user: Subject;
  limit: Limit;
  end: string | null;
}

/** What saving does, before it is done. */
function Effect({ rule, user, limit, end }: EffectProps) {
  const reservation = withoutEffect(rule, user);
  return (
    <div className={styles.effect}>
      <p>
        User {user.user_id} gets <strong>{limitSentence(limit)}</strong> instead of {limitSentence(rule)},{' '}
        {end === null ? 'until the override is removed.' : `until ${endInWords(end)}.`} It takes effect within
        2 s.
      </p>
      {reservation && <p className={styles.warning}>{reservation}</p>}
    </div>
  );
}
