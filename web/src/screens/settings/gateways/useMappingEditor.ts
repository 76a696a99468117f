import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, ifMatch, type Tagged, tagged } from '~/api/client';
import { isStatus } from '~/api/problem';
import type { AuthorizeMapping, StoredAuthorizeMapping } from '~/api/types';
import { done } from '~/components/toast';
import { type Draft, draftOf, formCovers, mappingOf, read, same, textOf } from './draft';
import { authorizeQuery } from './queries';

type Saved = Tagged<StoredAuthorizeMapping>;

/** The edited mapping, as a form and as JSON, and how it is saved. */
export function useMappingEditor(tenant: string, saved: Saved, json: boolean) {
  const queries = useQueryClient();
  const path = { tenant };
  const [base, setBase] = useState(saved);
  const [draft, setDraft] = useState(() => draftOf(saved.value.mapping));
  const [typed, setTyped] = useState<string | null>(null);
  const [theirs, setTheirs] = useState<Saved | null>(null);

  const text = typed ?? textOf(formCovers(base.value.mapping) ? mappingOf(draft) : base.value.mapping);
  const readText = read(text);
  const mapping: AuthorizeMapping | undefined = json ? readText.mapping : mappingOf(draft);
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
    queries.setQueryData(authorizeQuery(tenant).queryKey, now);
  }

  const current = () => tagged(api.GET('/api/v1/tenants/{tenant}/gateways/authorize', { params: { path } }));
  const save = useMutation({
    mutationFn: (etag: string) =>
      tagged(
        api.PUT('/api/v1/tenants/{tenant}/gateways/authorize', {
          params: { path, header: ifMatch(etag) },
          body: mapping ?? {},
        }),
      ),
    onSuccess: async (now) => {
      adopt(now);
      await changed(queries, tenant, 'gateway');
      done('Mapping saved. It takes effect within 2 s');
    },
    onError: async (error) => {
      if (isStatus(error, 412)) setTheirs(await current());
    },
  });

  return {
    draft,
    setDraft(next: Draft) {
      setDraft(next);
      setTyped(null);
    },
    text,
    setText(next: string) {
      setTyped(next);
      const { mapping } = read(next);
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
    },
    adopt,
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
