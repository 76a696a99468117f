import { Button, Chip, Group, Modal, NativeSelect, NumberInput, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { isStatus, ProblemError, sentence } from '~/api/problem';
import { tenantKey } from '~/api/queries';
import type { Override, OverrideLimit, Rule, User } from '~/api/types';
import { ConflictDialog } from '~/components/ConflictDialog';
import { RateInput } from '~/components/RateInput';
import { done } from '~/components/toast';
import { exactTime } from '~/domain/format';
import { type Limit, limitProblems, limitSentence } from '~/domain/rate';
import { type Expiry, expiresAt, expiryOf, lengths } from './expiry';
import styles from './Users.module.css';

interface Props {
  tenant: string;
  user: User;
  /** The rules that can be raised for the user; not empty. */
  rules: Rule[];
  /** The one to begin with. */
  rule?: number;
  onClose: () => void;
}

interface Draft {
  limit: Limit;
  reason: string;
  expiry: Expiry;
}

/** A limit of the user's own for one rule, with a reason, until some time. */
export function Raise({ tenant, user, rules, rule: first, onClose }: Props) {
  const [chosen, setChosen] = useState(first);
  const rule = rules.find(({ rule_id }) => rule_id === chosen) ?? (rules[0] as Rule);
  const present = user.overrides.find(({ rule_id }) => rule_id === rule.rule_id);
  return (
    <Modal opened onClose={onClose} size={520} title={`Raise a limit of user ${user.user_id}`}>
      <NativeSelect
        label="Rule"
        value={String(rule.rule_id)}
        data={rules.map((one) => ({ value: String(one.rule_id), label: ruleLabel(one) }))}
        onChange={(event) => setChosen(Number(event.currentTarget.value))}
      />
      {/* Another rule begins another draft. */}
      <Form key={rule.rule_id} tenant={tenant} user={user} rule={rule} present={present} onClose={onClose} />
    </Modal>
  );
}

function ruleLabel({ key_pattern, name, plan, mode }: Rule): string {
  return [key_pattern, name, plan ?? 'all plans', mode === 'shadow' && 'shadow'].filter(Boolean).join(' · ');
}

interface FormProps {
  tenant: string;
  user: User;
  rule: Rule;
  present: Override | undefined;
  onClose: () => void;
}

function Form({ tenant, user, rule, present, onClose }: FormProps) {
  const [draft, setDraft] = useState<Draft>(() => begin(rule, present));
  const [basis, setBasis] = useState(present);
  const [theirs, setTheirs] = useState<Override | null>(null);
  const queries = useQueryClient();
  const problems = limitProblems(draft.limit);
  const end = expiresAt(draft.expiry, Date.now());
  const change = (part: Partial<Draft>) => setDraft((old) => ({ ...old, ...part }));

  const save = useMutation({
    mutationFn: (over: Override | undefined) => put(tenant, user.user_id, rule.rule_id, over, limitOf(draft)),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: tenantKey(tenant) });
      done(`User ${user.user_id} has ${limitSentence(draft.limit)} now`);
      onClose();
    },
    onError: async (error) => {
      if (!isStatus(error, 412)) return;
      const now = await read(tenant, user.user_id, rule.rule_id);
      setBasis(now);
      if (now) setTheirs(now);
      else save.mutate(undefined); // they removed it: ours is the only one
    },
  });
  const field = (pointer: string) =>
    save.error instanceof ProblemError ? save.error.field(pointer) : undefined;
  const ready = !problems.rate && !problems.burst && draft.reason.trim() !== '' && end !== undefined;

  return (
    <form
      className={styles.raise}
      onSubmit={(event) => {
        event.preventDefault();
        if (ready) save.mutate(basis);
      }}
    >
      <Times rule={rule} limit={draft.limit} onChange={(limit) => change({ limit })} />
      <div className={styles.limit}>
        <RateInput
          label="Rate"
          value={draft.limit}
          error={problems.rate ?? field('/rate_per_second')}
          onChange={(rate) => change({ limit: { ...draft.limit, ...rate } })}
        />
        <NumberInput
          label="Bursts to"
          value={draft.limit.burst_capacity}
          error={problems.burst ?? field('/burst_capacity')}
          thousandSeparator=","
          hideControls
          onChange={(burst) => change({ limit: { ...draft.limit, burst_capacity: Number(burst) } })}
        />
      </div>
      <TextInput
        label="Reason"
        description="For whoever asks later: a ticket, a name, a migration."
        value={draft.reason}
        maxLength={500}
        required
        withAsterisk={false}
        data-autofocus
        error={field('/reason')}
        onChange={(event) => change({ reason: event.currentTarget.value })}
      />
      <Ends expiry={draft.expiry} error={field('/expires_at')} onChange={(expiry) => change({ expiry })} />
      {ready && (
        <p className={styles.effect}>
          User {user.user_id} gets <strong>{limitSentence(draft.limit)}</strong> instead of{' '}
          {limitSentence(rule)}
          {end === null
            ? ', until somebody ends it.'
            : `, until ${exactTime(end.getTime())}; then that holds again.`}{' '}
          It is in force within 2 s.
        </p>
      )}
      {save.isError && !isStatus(save.error, 412) && (
        <p role="alert" style={{ color: 'var(--denied)' }}>
          {sentence(save.error)}
        </p>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" loading={save.isPending} disabled={!ready}>
          {basis ? 'Change the raise' : 'Raise the limit'}
        </Button>
      </Group>
      {theirs && (
        <ConflictDialog
          opened
          what={`this limit of user ${user.user_id}`}
          versions={[
            { label: 'Limit', mine: limitSentence(draft.limit), theirs: limitSentence(theirs) },
            { label: 'Reason', mine: draft.reason, theirs: theirs.reason },
            { label: 'Ends', mine: ending(end ?? null), theirs: ending(theirs.expires_at) },
          ]}
          onKeepMine={() => {
            setTheirs(null);
            save.mutate(theirs);
          }}
          onTakeTheirs={onClose}
          onClose={() => setTheirs(null)}
        />
      )}
    </form>
  );
}

/** What a raise usually is: so many times the rule's limit. */
function Times({ rule, limit, onChange }: { rule: Rule; limit: Limit; onChange: (limit: Limit) => void }) {
  const times = [2, 5, 10];
  const chosen = times.find((factor) => same(multiplied(rule, factor), limit));
  return (
    <Chip.Group
      value={chosen === undefined ? '' : String(chosen)}
      onChange={(factor) => onChange(multiplied(rule, Number(factor)))}
    >
      <fieldset className={styles.times}>
        <legend className="aside">Times the rule’s limit</legend>
        {times.map((factor) => (
          <Chip key={factor} value={String(factor)} variant="light" size="xs">
            {factor} times
          </Chip>
        ))}
        <span className="soft">the rule’s {limitSentence(rule)}</span>
      </fieldset>
    </Chip.Group>
  );
}

interface EndsProps {
  expiry: Expiry;
  error: string | undefined;
  onChange: (expiry: Expiry) => void;
}

function Ends({ expiry, error, onChange }: EndsProps) {
  return (
    <div className={styles.ends}>
      <NativeSelect
        label="It holds"
        value={expiry.length}
        data={lengths.map(({ value, label }) => ({ value, label }))}
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

/** Twice the rule's limit for a week, or the raise there is. */
function begin(rule: Rule, present: Override | undefined): Draft {
  if (!present) return { limit: multiplied(rule, 2), reason: '', expiry: { length: '7d', until: '' } };
  const { rate_per_second, rate_unit, burst_capacity, reason, expires_at, expired } = present;
  const expiry = expired ? { length: '7d', until: '' } : expiryOf(expires_at);
  return { limit: { rate_per_second, rate_unit, burst_capacity }, reason, expiry };
}

function multiplied({ rate_per_second, rate_unit, burst_capacity }: Limit, factor: number): Limit {
  return { rate_per_second: rate_per_second * factor, rate_unit, burst_capacity: burst_capacity * factor };
}

function same(a: Limit, b: Limit): boolean {
  return a.rate_per_second === b.rate_per_second && a.burst_capacity === b.burst_capacity;
}

function limitOf({ limit, reason, expiry }: Draft): OverrideLimit {
  const { rate_per_second, rate_unit, burst_capacity } = limit;
  const end = expiresAt(expiry, Date.now());
  return {
    rate_per_second,
    rate_unit,
    burst_capacity,
    reason: reason.trim(),
    expires_at: end?.toISOString() ?? null,
  };
}

/** The override as it is now, if there is one; a user's first 500 may be without it. */
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

function ending(at: Date | string | null): string {
  return at === null ? 'never' : exactTime(new Date(at).getTime());
}
