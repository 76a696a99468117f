import { lazy, Suspense } from 'react';
import { closeUndo, useUndoAsked } from '~/api/undo';

const UndoChange = lazy(() => import('~/components/UndoChange'));

/** Undoes the save that a toast told of. */
export function UndoDialog() {
  const asked = useUndoAsked();
  if (!asked) return null;
  const { tenant, request } = asked;
  return (
    <Suspense fallback={null}>
      <UndoChange tenant={tenant} of={{ request_id: request }} onClose={closeUndo} />
    </Suspense>
  );
}
