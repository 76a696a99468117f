import { Button } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, body, etagOf, ifMatch } from '~/api/client';
import { rulesQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Card } from '~/components/Page';
import { RuleLink } from '~/components/RuleLink';
import { useNow } from '~/components/Time';
import { done, failed } from '~/components/toast';
import { shortTime } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import { limitSentence } from '~/domain/rate';
import { useRole } from '~/session';
import styles from './temporary.module.css';

/** The rules that end by themselves, the next one first. Nothing if there are none. */
export function TemporaryRules({ tenant }: { tenant: string }) {
  const { edit } = useRole();
  const { data: rules = [] } = useQuery(rulesQuery(tenant));
  const now = useNow();
  const holding = rules
    .filter((rule) => rule.expires_at !== null && rule.is_active && !hasExpired(rule, now))
    .toSorted((a, b) => Date.parse(a.expires_at ?? '') - Date.parse(b.expires_at ?? ''));
  if (holding.length === 0) return null;
  return (
    <Card title="Temporary rules" lead="They end by themselves." flush>
      <ul className={styles.list} aria-label="Temporary rules">
        {holding.map((rule) => (
          <li key={rule.rule_id}>
            <RuleLink tenant={tenant} id={rule.rule_id} rule={rule} />
            <span className="soft">
              {{ block: 'Blocks', limit: limitSentence(rule), bypass: 'Lets through' }[rule.action]} until{' '}
              {shortTime(Date.parse(rule.expires_at ?? ''))}
            </span>
            {edit && <EndNow tenant={tenant} rule={rule} />}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function EndNow({ tenant, rule }: { tenant: string; rule: Rule }) {
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () =>
      body(
        api.PATCH('/api/v1/tenants/{tenant}/rules/{rule_id}', {
          params: {
            path: { tenant, rule_id: rule.rule_id },
            header: ifMatch(etagOf(rule)),
          },
          body: { expires_at: new Date().toISOString() },
        }),
      ),
    onSuccess: async () => {
      await changed(queries, tenant, 'rule');
      done('The rule has ended. Its log entry can undo this.');
    },
    onError: (error) => failed('The rule was not ended', error),
  });
  return (
    <Button size="xs" variant="default" loading={end.isPending} onClick={() => end.mutate()}>
      End now
    </Button>
  );
}
