import { Button, Group, getDefaultZIndex, Modal } from '@mantine/core';
import { useBlocker } from '@tanstack/react-router';

/** Asks before the reader leaves a page with unsaved changes: by a link, by back or by closing the tab. */
export function Leaving({ when, what }: { when: boolean; what: string }) {
  const { status, proceed, reset } = useBlocker({
    shouldBlockFn: ({ current, next }) => when && current.pathname !== next.pathname,
    enableBeforeUnload: when,
    withResolver: true,
  });
  return (
    <Modal
      opened={status === 'blocked'}
      onClose={() => reset?.()}
      title="Leave without saving?"
      zIndex={getDefaultZIndex('popover')} // above the menu of a phone, whose link was pressed
    >
      <p className="soft">{what} will be lost.</p>
      <Group justify="flex-end" mt="lg">
        <Button variant="default" onClick={() => proceed?.()}>
          Leave
        </Button>
        <Button onClick={() => reset?.()} data-autofocus>
          Stay
        </Button>
      </Group>
    </Modal>
  );
}
