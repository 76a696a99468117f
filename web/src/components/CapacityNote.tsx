import { useQuery } from '@tanstack/react-query';
import { capacityQuery } from '~/api/queries';
import type { CapacityThing } from '~/api/types';
import { fullText, isFull } from '~/domain/capacity';
import styles from './CapacityNote.module.css';

export function CapacityNote({ tenant, thing }: { tenant: string; thing: CapacityThing }) {
  const capacity = useQuery(capacityQuery(tenant));
  const full = capacity.data?.value.items.find((one) => one.thing === thing);
  if (!full || !isFull(full)) return null;
  return (
    <p role="alert" className={styles.note}>
      <strong>Capacity reached.</strong> {fullText(full)}
    </p>
  );
}
