import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import type { Tagged } from '~/api/client';
import { isStatus } from '~/api/problem';
import { makeStore, useStore } from '~/api/store';
import { ConflictDialog } from './ConflictDialog';
import type { Wrong } from './FormDialog';

/** V is what the server holds, D the fields of its form. */
interface Saving<V, D extends object> {
  what: string;
  /** Another thing begins another draft. */
  id?: string | number;
  saved: Tagged<V>;
  draftOf: (value: V) => D;
  /** Fails with 412 if another version is saved. */
  send: (draft: D, base: Tagged<V>) => Promise<Tagged<V>>;
  read: () => Promise<Tagged<V>>;
  /** A field in words, for a lost race; theirs is the saved version if the draft is its own. */
  say: (field: keyof D & string, draft: D, theirs?: V) => [label: string, text: string];
  store?: (now: Tagged<V>) => unknown;
  onSaved?: (now: Tagged<V>) => unknown;
}

type Choice = 'mine' | 'theirs' | 'back';

interface State<V, D> {
  begun: { base: Tagged<V>; draft: D; id?: string | number; seen: string } | null;
  lost: { theirs: Tagged<V>; choose: (choice: Choice) => void } | null;
}

type Typed<T> = T | React.ChangeEvent<{ value: string }>;

/** The props of an input, by its field: `{...field('name')}`. */
export function fieldsOf<D extends object>(draft: D, change: (part: Partial<D>) => void, wrong?: Wrong) {
  return <K extends keyof D & string>(name: K, wrongHere = wrong) => ({
    value: draft[name],
    error: wrongHere?.(`/${name}`),
    onChange: (typed: Typed<D[K]>) => {
      const isEvent = typeof typed === 'object' && typed !== null && 'currentTarget' in typed;
      change({ [name]: isEvent ? typed.currentTarget.value : typed } as Partial<D>);
    },
  });
}

export const mostMerges = 5;

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}

/**
 * Fields that both changed to different values clash, and are mine in the result; without a base all that differ do.
 */
export function merge<D extends object>(base: D | null, mine: D, theirs: D) {
  const draft = { ...theirs };
  const clashes: (keyof D & string)[] = [];
  for (const field of Object.keys(mine) as (keyof D & string)[]) {
    const isMine = !base || !same(mine[field], base[field]);
    if (isMine) draft[field] = mine[field];
    if (isMine && !same(mine[field], theirs[field]) && (!base || !same(theirs[field], base[field])))
      clashes.push(field);
  }
  return { draft, clashes };
}

/**
 * After a lost race the fields that only one side changed are merged and saved; the reader chooses between the others.
 * `save` resolves with whether nothing is left to save.
 */
export function useSave<V, D extends object>(saving: Saving<V, D>) {
  const { what, id, saved, draftOf, send, read, say, store, onSaved } = saving;
  const [state] = useState(() => makeStore<State<V, D>>({ begun: null, lost: null }));
  useStore(state);

  /** A draft without edits follows the saved version. */
  function current() {
    const { begun } = state.get();
    const isClean = begun && same(begun.draft, draftOf(begun.base.value));
    if (!begun || begun.id !== id || (isClean && begun.seen !== saved.etag))
      return { base: saved, draft: draftOf(saved.value) };
    return begun;
  }
  function put(base: Tagged<V>, draft: D) {
    state.set({ ...state.get(), begun: { base, draft, id, seen: saved.etag } });
  }
  const isClean = () => same(current().draft, draftOf(current().base.value));

  function merged(theirs: Tagged<V>) {
    const { base, draft } = current();
    const begun = base.value === null || theirs.value === null ? null : draftOf(base.value);
    const result = merge(begun, draft, draftOf(theirs.value));
    return theirs.value === null ? { ...result, clashes: Object.keys(draft) as (keyof D & string)[] } : result;
  }

  async function attempt(): Promise<boolean> {
    for (let merges = 0; ; merges++) {
      const { base, draft: sent } = current();
      const now = await send(sent, base).catch((error) => {
        if (!isStatus(error, 412) || merges === mostMerges) throw error;
        return null;
      });
      if (now) {
        // The server may normalize a field. Later input stays.
        put(now, merge(sent, current().draft, draftOf(now.value)).draft);
        await store?.(now);
        await onSaved?.(now);
        return isClean();
      }
      const theirs = await read();
      const choice = merged(theirs).clashes.length === 0 ? 'mine' : await ask(theirs);
      if (choice === 'back') return false;
      const { draft, clashes } = merged(theirs);
      if (choice === 'theirs') {
        for (const field of clashes) draft[field] = draftOf(theirs.value)[field];
        put(theirs, draft);
        await store?.(theirs);
        return isClean();
      }
      put(theirs, draft);
    }
  }

  async function ask(theirs: Tagged<V>): Promise<Choice> {
    const choice = await new Promise<Choice>((choose) => state.set({ ...state.get(), lost: { theirs, choose } }));
    state.set({ ...state.get(), lost: null });
    return choice;
  }

  const mutation = useMutation({ mutationFn: attempt });
  const { base, draft } = current();
  const { lost } = state.get();
  const change = (part: Partial<D>) => put(current().base, { ...current().draft, ...part });
  return {
    base: base.value,
    draft,
    dirty: !isClean(),
    change,
    field: fieldsOf(draft, change),
    discard: () => {
      put(current().base, draftOf(current().base.value));
      mutation.reset();
    },
    save: mutation.mutateAsync,
    submit: () => mutation.mutate(),
    pending: mutation.isPending,
    error: mutation.error,
    conflict: lost && (
      <ConflictDialog
        opened
        what={what}
        versions={merged(lost.theirs).clashes.map((field) => {
          const [label, mine] = say(field, draft);
          return { label, mine, theirs: say(field, draftOf(lost.theirs.value), lost.theirs.value)[1] };
        })}
        onKeepMine={() => lost.choose('mine')}
        onTakeTheirs={() => lost.choose('theirs')}
        onClose={() => lost.choose('back')}
      />
    ),
  };
}
