import { useQuery } from '@tanstack/react-query';
import { useEffect } from 'react';
import { sessionQuery } from '~/api/queries';
import { closeUndo, useUndoAsked } from '~/api/undo';
import { later } from '~/components/later';

const UndoChange = later(() => import('~/components/UndoChange'));

export function UndoDialog() {
  const asked = useUndoAsked();
  const { data: session } = useQuery({ ...sessionQuery, enabled: false });
  useEffect(() => {
    if (asked && session === null) closeUndo();
  }, [asked, session]);
  if (!asked || !session) return null;
  const { tenant, request } = asked;
  return <UndoChange tenant={tenant} of={{ request_id: request }} onClose={closeUndo} />;
}
