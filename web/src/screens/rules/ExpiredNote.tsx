import { useQuery } from '@tanstack/react-query';
import { scheduledQuery } from '~/api/scheduled';
import type { Rule } from '~/api/types';
import { RelativeTime, useNow } from '~/components/Time';
import { shortTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { isOpen } from '~/domain/scheduled';
import styles from './Rules.module.css';

/** How long the server keeps a rule after its end and its last edit; rules.ExpiredKept. */
const kept = 7 * 86_400_000;

interface Props {
  tenant: string;
  rule: Rule;
  hasCandidate: boolean;
}

export function ExpiredNote({ tenant, rule, hasCandidate }: Props) {
  const now = useNow();
  const expired = hasExpired(rule, now);
  const { data: scheduled } = useQuery({ ...scheduledQuery(tenant, rule.rule_id), enabled: expired });
  if (!expired || !rule.expires_at) return null;
  const removal = Math.max(Date.parse(rule.expires_at), Date.parse(rule.updated_at)) + kept;
  const keeper = hasCandidate ? 'candidate' : scheduled?.some(isOpen) ? 'scheduled change' : null;
  return (
    <p className={styles.sentence} role="note">
      This rule ended <RelativeTime at={rule.expires_at} /> and matches nothing.{' '}
      {keeper
        ? `It is kept while it has a ${keeper}.`
        : removal > now
          ? `It will be removed on ${shortTime(removal)}. A later end brings it back.`
          : 'It will be removed soon. A later end brings it back.'}
    </p>
  );
}
