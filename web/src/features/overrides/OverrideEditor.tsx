import { TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { etagOf } from '~/api/client';
import { serverNow } from '~/api/clock';
import type { Override, Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { CapacityNote } from '~/components/CapacityNote';
import { Effect as LimitEffect } from '~/components/Effect';
import { FormDialog } from '~/components/FormDialog';
import { LimitPair } from '~/components/LimitPair';
import { done } from '~/components/toast';
import { useSave } from '~/components/useSave';
import { type Limit, limitProblems, limitSentence } from '~/domain/rate';
import {
  amounts,
  beginOverride,
  endInWords,
  isOwnLimit,
  type OverrideDraft,
  overrideBody,
  type Subject,
  sayField,
  withoutEffect,
} from './draft';
import { expiresAt } from './expiry';
import styles from './OverrideEditor.module.css';
import { Duration, Multiplier } from './OverrideFields';
import { readOverride, saveOverride } from './queries';

interface Props {
  tenant: string;
  rule: Rule;
  user: Subject;
  /** Whether the dialog was opened for this user, and does not ask. */
  named: boolean;
  saved: Override | undefined;
  children: React.ReactNode;
  onBegin: () => void;
  onClose: () => void;
}

const tag = (over: Override | undefined) => ({ value: over ?? null, etag: over ? etagOf(over) : '' });

export function OverrideEditor({ tenant, rule, user, named, saved, children, onBegin, onClose }: Props) {
  const queries = useQueryClient();
  const subject = { rule_id: rule.rule_id, user_id: user.user_id };
  const editor = useSave<Override | null, OverrideDraft>({
    id: rule.rule_id,
    what: `the override of user ${subject.user_id}`,
    // Somebody who names the user in the dialog has seen none of their overrides.
    saved: tag(named ? saved : undefined),
    draftOf: (over) => beginOverride(rule, over ?? undefined),
    send: async (draft, base) => tag(await saveOverride(tenant, subject, base.value ?? undefined, overrideBody(draft))),
    read: async () => tag(await readOverride(tenant, subject)),
    say: (field, draft, theirs) => sayField(field, draft, rule, theirs),
    store: () => changed(queries, tenant, 'override'),
    onSaved: ({ value }) =>
      value &&
      done(`Override saved. User ${value.user_id}: ${limitSentence({ ...rule, ...value })}`, undoOf(tenant, value)),
  });
  const { draft, field } = editor;
  const problems = limitProblems(draft.limit);
  const end = expiresAt(draft.expiry, serverNow());
  const change = (part: Partial<OverrideDraft>) => {
    onBegin(); // Safari does not focus what is clicked
    editor.change(part);
  };
  const isLimit = !problems.rate && !problems.burst;
  const changesNothing = isLimit && isOwnLimit(rule, draft.limit);
  const [wasAsked, setWasAsked] = useState(false);
  const save = async () => {
    if (!changesNothing || wasAsked) return editor.save();
    setWasAsked(true);
    return false;
  };

  return (
    <FormDialog
      onClose={onClose}
      size={520}
      title={`${saved ? 'Edit' : 'New'} override${named ? ` for user ${user.user_id}` : ''}`}
      verb={changesNothing && wasAsked ? 'Save anyway' : 'Save override'}
      invalid={!isLimit || end === undefined || subject.user_id === ''}
      save={save}
      beside={editor.conflict}
    >
      {(wrong) => (
        <>
          {children}
          {/* Another rule begins another draft, so the rule stays once the draft is begun. */}
          <fieldset className={styles.form} onFocus={onBegin}>
            {!saved && <CapacityNote tenant={tenant} thing="overrides" />}
            <Multiplier rule={rule} limit={draft.limit} onChange={(limit) => change({ limit })} />
            <LimitPair
              limit={draft.limit}
              wrong={wrong}
              onChange={(part) => change({ limit: { ...draft.limit, ...part } })}
            />
            <TextInput
              label="Reason"
              description="A ticket, a name, a migration"
              maxLength={500}
              required
              data-autofocus={named || undefined}
              {...field('reason')}
              error={wrong('/reason')}
            />
            <Duration expiry={draft.expiry} error={wrong('/expires_at')} onChange={(expiry) => change({ expiry })} />
            {isLimit && end !== undefined && subject.user_id !== '' && (
              <Effect rule={rule} user={user} limit={draft.limit} end={end} />
            )}
            {isLimit && subject.user_id !== '' && (
              <LimitEffect tenant={tenant} question={{ override: { ...subject, ...amounts(draft.limit) } }} />
            )}
            {wrong('/user_id') && (
              <p role="alert" className={styles.error}>
                User: {wrong('/user_id')}
              </p>
            )}
          </fieldset>
        </>
      )}
    </FormDialog>
  );
}

interface EffectProps {
  rule: Rule;
  user: Subject;
  limit: Limit;
  end: string | null;
}

function Effect({ rule, user, limit, end }: EffectProps) {
  const reservation = isOwnLimit(rule, limit)
    ? 'This is the rule’s own limit: the override changes nothing until the rule does.'
    : withoutEffect(rule, user);
  return (
    <div className={styles.effect}>
      <p>
        User {user.user_id} gets <strong>{limitSentence(limit)}</strong> instead of {limitSentence(rule)},{' '}
        {end === null ? 'until the override is removed.' : `until ${endInWords(end)}.`}
      </p>
      {reservation && (
        <p role="status" className={styles.warning}>
          {reservation}
        </p>
      )}
    </div>
  );
}
