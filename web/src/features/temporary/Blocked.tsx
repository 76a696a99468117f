import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { blocksQuery } from '~/api/queries';
import { Outcome } from '~/components/Outcome';
import { useNow } from '~/components/Time';
import { shortTime } from '~/domain/format';
import { type Group, hasExpired } from '~/domain/group';
import { useRole } from '~/session';
import { EndNow } from './EndNow';
import { type Match, matching } from './matching';
import styles from './temporary.module.css';

export function useBlock(tenant: string, { by, value }: Group): Match | undefined {
  const { data } = useQuery(blocksQuery(tenant));
  const blocks = useMemo(
    () => matching(data ?? [], { by, value }, 'block').filter(({ partly }) => !partly),
    [data, by, value],
  );
  const now = useNow(1000); // one that was ended a moment ago is gone at once
  return blocks.find(({ rule }) => !hasExpired(rule, now));
}

export function Blocked({ tenant, group }: { tenant: string; group: Group }) {
  const { edit } = useRole();
  const block = useBlock(tenant, group);
  if (!block) return null;
  const { rule, own } = block;
  return (
    <span className={styles.blocked}>
      <Outcome tone="denied">Blocked</Outcome>
      <span className="soft">
        {rule.expires_at === null ? 'without end' : `until ${shortTime(Date.parse(rule.expires_at))}`}
      </span>
      {edit && own && rule.expires_at !== null && <EndNow tenant={tenant} rule={rule} />}
    </span>
  );
}
