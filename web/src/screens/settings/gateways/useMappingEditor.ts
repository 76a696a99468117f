import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import type { Tagged } from '~/api/client';
import { isStatus } from '~/api/problem';
import { done } from '~/components/toast';
import { read, textOf } from './json';
import { type Kind, mappingQuery, type Stored } from './kinds';

/** The edited mapping, as a form and as JSON, and how it is saved. */
export function useMappingEditor<M extends object, D>(
  tenant: string,
  kind: Kind<M, D>,
  saved: Tagged<Stored<M>>,
  json: boolean,
) {
  type Saved = Tagged<Stored<M>>;
  const { draftOf, formCovers, mappingOf, same } = kind;
  const queries = useQueryClient();
  const [base, setBase] = useState(saved);
  const [draft, setDraft] = useState(() => draftOf(saved.value.mapping));
  const [typed, setTyped] = useState<string | null>(null);
  const [theirs, setTheirs] = useState<Saved | null>(null);

  const text = typed ?? textOf(formCovers(base.value.mapping) ? mappingOf(draft) : base.value.mapping);
  const readText = read<M>(text);
  const mapping: M | undefined = json ? readText.mapping : mappingOf(draft);
  const dirty = mapping === undefined || !same(mapping, base.value.mapping);
  // A form that nobody touched shows what somebody else saved.
  if (!dirty && saved.etag !== base.etag) reset(saved);
  const { etag } = same(saved.value.mapping, base.value.mapping) ? saved : base;

  function reset(now: Saved) {
    setBase(now);
    setDraft(draftOf(now.value.mapping));
    setTyped(null);
  }

  function adopt(now: Saved) {
    reset(now);
    queries.setQueryData(mappingQuery(kind, tenant).queryKey, now);
  }

  const save = useMutation({
    mutationFn: (etag: string) => kind.put(tenant, etag, mapping ?? ({} as M)),
    onSuccess: async (now) => {
      adopt(now);
      await changed(queries, tenant, 'gateway');
      done('Mapping saved. It takes effect within 2 s');
    },
    onError: async (error) => {
      if (isStatus(error, 412)) setTheirs(await kind.get(tenant));
    },
  });

  return {
    draft,
    setDraft(next: D) {
      setDraft(next);
      setTyped(null);
    },
    text,
    setText(next: string) {
      setTyped(next);
      const { mapping } = read<M>(next);
      if (mapping && formCovers(mapping)) setDraft(draftOf(mapping));
    },
    textError: readText.error,
    /** Whether the form can show what is edited. */
    canForm: readText.mapping !== undefined && formCovers(readText.mapping),
    /** What is edited; undefined if it is no JSON. */
    mapping,
    dirty,
    save: () => save.mutate(etag),
    saving: save,
    discard: () => {
      reset(base);
      save.reset();
      if (!dirty) return;
      done('Edits discarded', {
        label: 'Undo',
        run() {
          setDraft(draft);
          setTyped(typed);
        },
      });
    },
    /** Removes the saved mapping. */
    remove: async () => {
      await kind.remove(tenant, saved.etag);
      adopt(await kind.get(tenant));
      await changed(queries, tenant, 'gateway');
      done('Mapping removed. This takes effect within 2 s');
    },
    theirs,
    keepMine() {
      if (theirs) save.mutate(theirs.etag);
      setTheirs(null);
    },
    takeTheirs() {
      if (theirs) adopt(theirs);
      setTheirs(null);
      save.reset();
    },
    keepEditing: () => setTheirs(null),
  };
}

export type MappingEditor<M extends object, D> = ReturnType<typeof useMappingEditor<M, D>>;
