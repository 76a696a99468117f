import { Button, Group } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api, type Tagged } from '~/api/client';
import { ruleQuery } from '~/api/queries';
import type { Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { ConfirmAction } from '~/components/ConfirmAction';
import { Effect } from '~/components/Effect';
import { done } from '~/components/toast';
import { ruleEffect } from '~/domain/rule';
import { comparisonQuery, comparisonWords } from './comparison';
import styles from './Rules.module.css';
import { promoted } from './ruleDraft';

interface Props {
  tenant: string;
  saved: Tagged<Rule>;
  live: Tagged<Rule>;
}

export function CandidateActions({ tenant, saved, live }: Props) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState<'promote' | 'remove' | null>(null);
  const { data: comparison } = useQuery({
    ...comparisonQuery(tenant, saved.value.rule_id),
    enabled: asking !== null,
  });
  const candidate = saved.value;
  const params = { tenant, rule_id: candidate.rule_id, etag: saved.etag };

  async function openLive(said: string, answer: object) {
    await navigate({ to: '/t/$tenant/rules/$rule', params: { tenant, rule: String(live.value.rule_id) } });
    queries.removeQueries({ queryKey: ruleQuery(tenant, candidate.rule_id).queryKey });
    await changed(queries, tenant, 'rule');
    done(said, undoOf(tenant, answer));
  }

  async function promote() {
    const inForce = await api.post('/api/v1/tenants/{tenant}/rules/{rule_id}/promote', {
      ...params,
      body: { into_rule_id: live.value.rule_id, into_version: live.value.version },
    });
    await openLive(`Candidate promoted. ${ruleEffect(candidate)} takes effect within 2 s`, inForce);
  }

  async function remove() {
    const removed = await api.delete('/api/v1/tenants/{tenant}/rules/{rule_id}', params);
    await openLive('Candidate removed', removed);
  }

  const words = comparison && <p>{comparisonWords(comparison)}</p>;
  return (
    <Group gap={8}>
      <Button variant="default" onClick={() => setAsking('remove')}>
        Remove candidate
      </Button>
      <Button onClick={() => setAsking('promote')}>Promote</Button>
      <ConfirmAction
        opened={asking === 'promote'}
        onClose={() => setAsking(null)}
        title="Promote this candidate?"
        effect={
          <div className={styles.form}>
            {words}
            <Effect tenant={tenant} question={{ rules: [promoted(candidate, live.value)] }} />
            <p>
              The live rule goes from <s>{ruleEffect(live.value)}</s> to <strong>{ruleEffect(candidate)}</strong> within
              2 s. It keeps its buckets and overrides, and the candidate is removed.
            </p>
          </div>
        }
        verb="Promote"
        action={promote}
      />
      <ConfirmAction
        opened={asking === 'remove'}
        onClose={() => setAsking(null)}
        title="Remove this candidate?"
        effect={
          <div className={styles.form}>
            {words}
            <p>The candidate is removed. The live rule stays {ruleEffect(live.value)}.</p>
          </div>
        }
        verb="Remove candidate"
        destructive
        action={remove}
      />
    </Group>
  );
}
