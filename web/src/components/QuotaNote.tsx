import { useQuery } from '@tanstack/react-query';
import { quotasQuery } from '~/api/queries';
import type { QuotaThing } from '~/api/types';
import { fullText, isFull } from '~/domain/quota';
import styles from './QuotaNote.module.css';

/** Says where something is created that the tenant's capacity is reached; else nothing. */
export function QuotaNote({ tenant, thing }: { tenant: string; thing: QuotaThing }) {
  const quotas = useQuery(quotasQuery(tenant));
  const quota = quotas.data?.value.items.find((one) => one.thing === thing);
  if (!quota || !isFull(quota)) return null;
  return (
    <p role="alert" className={styles.note}>
      <strong>Capacity reached.</strong> {fullText(quota)}
    </p>
  );
}
