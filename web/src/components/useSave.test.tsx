import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { act, renderHook, waitFor } from '@testing-library/react';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Tagged } from '~/api/client';
import { ProblemError } from '~/api/problem';
import { merge, useSave } from './useSave';

type Thing = { a: string; b: string; c: string };
const fields = ['a', 'b', 'c'] as const;

const lostRace = () =>
  new ProblemError({ type: 'urn:sluice:problem:precondition-failed', title: 'changed', status: 412 });

/** Answers come when the test says so. */
function world() {
  let stored: Tagged<Thing> = { value: { a: '', b: '', c: '' }, etag: '0' };
  const versions = new Map([['0', stored.value]]);
  const waiting: { carryOut: () => void; fail: () => void }[] = [];
  const saved: Thing[] = [];

  function write(value: Thing): Tagged<Thing> {
    stored = { value, etag: String(Number(stored.etag) + 1) };
    versions.set(stored.etag, value);
    return stored;
  }
  const later = <T,>(act: () => T) =>
    new Promise<T>((resolve, reject) => {
      waiting.push({
        carryOut() {
          try {
            resolve(act());
          } catch (error) {
            reject(error);
          }
        },
        fail: () => reject(new Error('the answer was lost')),
      });
    });

  const client = new QueryClient();
  const hook = renderHook(
    ({ saved: newest }: { saved: Tagged<Thing> }) =>
      useSave<Thing, Thing>({
        what: 'this thing',
        saved: newest,
        draftOf: (value) => value,
        send: (draft, base) =>
          later(() => {
            if (base.etag !== stored.etag) throw lostRace();
            return write({ ...draft });
          }),
        read: () => later(() => stored),
        say: (field, draft) => [field, draft[field]],
        onSaved: (now) => saved.push(now.value),
      }),
    {
      initialProps: { saved: stored },
      wrapper: ({ children }) => (
        <MantineProvider env="test">
          <QueryClientProvider client={client}>{children}</QueryClientProvider>
        </MantineProvider>
      ),
    },
  );
  return {
    hook,
    waiting,
    versions,
    saved,
    now: () => hook.result.current,
    stored: () => stored,
    write,
  };
}

type Step =
  | { do: 'type'; field: (typeof fields)[number] }
  | { do: 'save' | 'answer' | 'fail' | 'read' | 'mine' | 'theirs' | 'back' }
  | { do: 'other'; field: (typeof fields)[number] };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('type' as const), field: fc.constantFrom(...fields) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('other' as const), field: fc.constantFrom(...fields) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constantFrom('save', 'answer', 'answer', 'answer', 'fail', 'read', 'mine', 'theirs', 'back'),
    }) as fc.Arbitrary<Step>,
  },
);

test('whatever is typed, refused and raced: nothing typed is lost, nothing shows as saved that is not', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const { hook, waiting, versions, saved, now, stored, write } = world();
      /** The latest text that the reader typed into a field, until they let the other's stand. */
      const typed = new Map<string, string>();
      const others = new Map<string, string>();
      const kept = new Set<string>();
      let count = 0;

      function look() {
        const { draft, base, dirty, pending, error } = now();
        for (const [field, text] of typed) {
          // Once saved, somebody else may have written over it.
          const isSaved = [...versions.values()].some((version) => version[field as keyof Thing] === text);
          expect(draft[field as keyof Thing] === text || isSaved, `${field} keeps ${text}`).toBe(true);
        }
        expect([...versions.values()]).toContainEqual(base);
        for (const field of fields) expect(dirty || draft[field] === base[field]).toBe(true);
        for (const value of saved) expect([...versions.values()]).toContainEqual(value);
        // An edit of somebody else is lost only where the reader wrote the same field.
        for (const [field, text] of others) {
          const present = stored().value[field as keyof Thing];
          if (present !== text) expect(kept.has(field) || typed.has(field), `${field} loses ${text}`).toBe(true);
        }
        return { pending, error };
      }

      for (const one of steps) {
        const before = now();
        let failed = false;
        await act(async () => {
          if (one.do === 'type') {
            const text = `mine ${++count}`;
            typed.set(one.field, text);
            kept.add(one.field);
            before.change({ [one.field]: text });
          } else if (one.do === 'other') {
            const text = `theirs ${++count}`;
            others.set(one.field, text);
            write({ ...stored().value, [one.field]: text });
          } else if (one.do === 'save') {
            if (!before.pending && before.dirty) before.submit();
          } else if (one.do === 'answer') {
            waiting.shift()?.carryOut();
          } else if (one.do === 'fail') {
            failed = waiting.length > 0;
            waiting.shift()?.fail();
          } else if (one.do === 'read') {
            hook.rerender({ saved: stored() });
          } else if (before.conflict) {
            const { onKeepMine, onTakeTheirs, onClose, versions } = before.conflict.props;
            if (one.do === 'mine') onKeepMine();
            else if (one.do === 'back') onClose();
            else {
              for (const { label } of versions) typed.delete(label); // the reader lets it go
              onTakeTheirs();
            }
          }
          await new Promise((resolve) => setTimeout(resolve, 0));
        });
        look();
        if (failed && !now().pending) expect(now().error, 'a failure is shown').not.toBeNull();
      }

      for (let presses = 0; presses < 20 && (now().pending || now().dirty); presses++) {
        await act(async () => {
          if (now().conflict) now().conflict?.props.onKeepMine();
          else if (waiting.length > 0) waiting.shift()?.carryOut();
          else if (!now().pending) now().submit();
          await new Promise((resolve) => setTimeout(resolve, 0));
        });
        look();
      }
      expect(now().dirty).toBe(false);
      expect(now().pending).toBe(false);
      hook.unmount();
    }),
    { numRuns: 150 },
  );
}, 120_000);

test('fields that one side changed are merged without a question, and a clash shows only itself', async () => {
  const { waiting, now, stored, write } = world();
  const settle = async (times: number) => {
    for (let i = 0; i < times; i++) {
      await waitFor(() => expect(waiting.length).toBeGreaterThan(0));
      await act(async () => waiting.shift()?.carryOut());
    }
  };
  act(() => now().change({ a: 'mine' }));
  write({ a: '', b: 'theirs', c: '' });
  act(() => now().submit());
  await settle(3); // 412, the reading, the save over it
  await waitFor(() => expect(now().pending).toBe(false));
  expect(stored().value).toEqual({ a: 'mine', b: 'theirs', c: '' });
  expect(now().draft).toEqual(stored().value);

  act(() => now().change({ a: 'mine again', c: 'mine' }));
  write({ a: 'theirs', b: 'theirs too', c: '' });
  act(() => now().submit());
  await settle(2);
  await waitFor(() => expect(now().conflict).not.toBeNull());
  expect(now().conflict?.props.versions).toEqual([{ label: 'a', mine: 'mine again', theirs: 'theirs' }]);
  act(() => now().conflict?.props.onTakeTheirs());
  await waitFor(() => expect(now().pending).toBe(false));
  expect(now().draft).toEqual({ a: 'theirs', b: 'theirs too', c: 'mine' });
  expect(now().dirty).toBe(true);
});

test('typing while a save runs stays, unsaved', async () => {
  const { waiting, now, stored } = world();
  act(() => now().change({ a: 'first' }));
  act(() => now().submit());
  await waitFor(() => expect(waiting).toHaveLength(1));
  act(() => now().change({ b: 'since' }));
  await act(async () => waiting.shift()?.carryOut());
  await waitFor(() => expect(now().pending).toBe(false));
  expect(stored().value).toEqual({ a: 'first', b: '', c: '' });
  expect(now().draft).toEqual({ a: 'first', b: 'since', c: '' });
  expect(now().dirty).toBe(true);
});

test('if the saved version cannot be read after a lost race, that is said', async () => {
  const { waiting, now, write } = world();
  act(() => now().change({ a: 'mine' }));
  write({ a: 'theirs', b: '', c: '' });
  act(() => now().submit());
  await waitFor(() => expect(waiting).toHaveLength(1));
  await act(async () => waiting.shift()?.carryOut());
  await waitFor(() => expect(waiting).toHaveLength(1));
  await act(async () => waiting.shift()?.fail());
  await waitFor(() => expect(now().error).toEqual(new Error('the answer was lost')));
  expect(now().draft.a).toBe('mine');
});

test('without a base everything that differs clashes', () => {
  const [mine, theirs] = [
    { a: 'x', b: 'y' },
    { a: 'x', b: 'z' },
  ];
  expect(merge(null, mine, theirs)).toEqual({ draft: mine, clashes: ['b'] });
});
