import { Button, Group, getDefaultZIndex, Modal } from '@mantine/core';
import { type ShouldBlockFn, useBlocker } from '@tanstack/react-router';
import { useEffect, useMemo } from 'react';
import { makeStore, useStore } from '~/api/store';
import { useEscape } from './useEscape';
import { panelParameters } from './usePanel';

interface Draft {
  what: string;
  inDialog: boolean;
}

/** All drafts of the page, so that one question is about all of them. */
const drafts: Draft[] = [];

/** All of the page, or those in a dialog that the address no longer opens. */
function lostBy({ current, next }: Pick<Parameters<ShouldBlockFn>[0], 'current' | 'next'>): Draft[] {
  const leaves = current.pathname !== next.pathname;
  const closes = panelParameters.some((parameter) => parameter in current.search && !(parameter in next.search));
  return drafts.filter(({ inDialog }) => leaves || (closes && inDialog));
}

const asked = makeStore<((leave: boolean) => void) | null>(null);

export async function mayLeave(): Promise<boolean> {
  if (drafts.length === 0) return true;
  const leaves = await new Promise<boolean>((resolve) => asked.set(resolve));
  asked.set(null);
  return leaves;
}

interface Props {
  when: boolean;
  what: string;
  inDialog?: boolean;
}

export function Leaving({ when, what, inDialog = false }: Props) {
  const draft = useMemo(() => ({ what, inDialog }), [what, inDialog]);
  useEffect(() => {
    if (!when) return;
    drafts.push(draft);
    return () => {
      drafts.splice(drafts.indexOf(draft), 1);
    };
  }, [when, draft]);
  const blocker = useBlocker({
    shouldBlockFn: (move) => lostBy(move).at(-1) === draft,
    enableBeforeUnload: when,
    withResolver: true,
  });
  const ask = useStore(asked);
  const isAsked = ask !== null && drafts.at(-1) === draft;
  const isBlocked = blocker.status === 'blocked';
  const isOpen = isBlocked || isAsked;
  function stay() {
    blocker.reset?.();
    ask?.(false);
  }
  function leave() {
    blocker.proceed?.();
    ask?.(true);
  }
  useEscape(isOpen, stay);
  return (
    <Modal
      opened={isOpen}
      onClose={stay}
      closeOnEscape={false}
      title="Leave without saving?"
      zIndex={getDefaultZIndex('popover')} // above the menu of a phone, whose link was pressed
    >
      <p className="soft">{isOpen && inWords(isBlocked ? lostBy(blocker) : drafts)} will be lost.</p>
      <Group justify="flex-end" mt="lg">
        <Button variant="default" onClick={leave}>
          Leave
        </Button>
        <Button onClick={stay} data-autofocus>
          Stay
        </Button>
      </Group>
    </Modal>
  );
}

function inWords(lost: Draft[]): string {
  return lost
    .map(({ what }, index) => (index === 0 ? what : what.charAt(0).toLowerCase() + what.slice(1)))
    .join(' and ');
}
