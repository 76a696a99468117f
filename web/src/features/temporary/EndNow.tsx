import { Button } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { changed } from '~/api/changes';
import { api, etagOf } from '~/api/client';
import type { Rule } from '~/api/types';
import { undoOf } from '~/api/undo';
import { done, failed } from '~/components/toast';

export function EndNow({ tenant, rule }: { tenant: string; rule: Rule }) {
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () =>
      api.patch('/api/v1/tenants/{tenant}/rules/{rule_id}', {
        tenant,
        rule_id: rule.rule_id,
        etag: etagOf(rule),
        body: { expires_in_seconds: 0 },
      }),
    onSuccess: async (ended) => {
      await changed(queries, tenant, 'rule');
      done('The rule has ended', undoOf(tenant, ended));
    },
    onError: (error) => failed('The rule was not ended', error),
  });
  return (
    <Button size="xs" variant="default" loading={end.isPending} onClick={() => end.mutate()}>
      End now
    </Button>
  );
}
