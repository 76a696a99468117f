import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import type { Tagged } from '~/api/client';
import { type Kind, mappingQuery, type Stored } from '~/api/gateways';
import { done } from '~/components/toast';
import { useSave } from '~/components/useSave';

const textOf = (mapping: object) => JSON.stringify(mapping, null, 2);

function read<M extends object>(text: string): { mapping?: M; error?: string } {
  try {
    const mapping: unknown = JSON.parse(text);
    if (typeof mapping === 'object' && mapping !== null && !Array.isArray(mapping)) return { mapping: mapping as M };
    return { error: 'must be a JSON object, in braces' };
  } catch (error) {
    return { error: `is not JSON: ${(error as Error).message}` };
  }
}

/** The mapping as it is typed, in JSON; its fields are what two people can edit at once. */
export function useMapping<M extends object>(tenant: string, kind: Kind<M>, saved: Tagged<Stored<M>>) {
  const queries = useQueryClient();
  const [typed, setTyped] = useState<string | null>(null);
  const { queryKey } = mappingQuery(kind, tenant);
  const editor = useSave<Stored<M>, Partial<M>>({
    what: 'this mapping',
    saved,
    draftOf: ({ mapping }) => mapping,
    send: (draft, { etag }) => kind.put(tenant, etag, JSON.parse(JSON.stringify(draft))),
    read: () => kind.get(tenant),
    say: (field, draft) => [field, draft[field] === undefined ? '–' : JSON.stringify(draft[field])],
    store: (now) => {
      queries.setQueryData(queryKey, now);
      setTyped((since) => (since === typed ? null : since));
    },
    onSaved: async () => {
      await changed(queries, tenant, 'gateway');
      done('Mapping saved. It takes effect within 2 s');
    },
  });
  const text = typed ?? textOf(editor.draft);
  const { mapping, error } = read<M>(text);

  function type(next: string) {
    setTyped(next);
    const { mapping } = read<M>(next);
    if (!mapping) return;
    const gone = Object.fromEntries(Object.keys(editor.draft).map((field) => [field, undefined]));
    editor.change({ ...gone, ...mapping } as Partial<M>);
  }

  return {
    text,
    type,
    textError: error,
    mapping,
    dirty: editor.dirty || error !== undefined,
    save: editor.submit,
    pending: editor.pending,
    error: editor.error,
    conflict: editor.conflict,
    discard() {
      editor.discard();
      setTyped(null);
      done('Edits discarded', { label: 'Undo', run: () => type(text) });
    },
    async remove() {
      await kind.remove(tenant, saved.etag);
      queries.setQueryData(queryKey, await kind.get(tenant));
      setTyped(null);
      await changed(queries, tenant, 'gateway');
      done('Mapping removed. This takes effect within 2 s');
    },
  };
}
