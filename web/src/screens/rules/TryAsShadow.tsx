import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import type { Rule } from '~/api/types';
import { failed } from '~/components/toast';
import { patch, type RuleDraft } from './ruleDraft';
import { useTryAsShadow } from './useTryAsShadow';

interface Props {
  tenant: string;
  rule: Rule;
  draft: RuleDraft;
  ready: boolean;
  onSaved: () => void;
}

export function TryAsShadow({ tenant, rule, draft, ready, onSaved }: Props) {
  const begin = useTryAsShadow(tenant, rule);
  const save = useMutation({
    mutationFn: () => begin(patch(rule, draft), onSaved),
    onError: (error) => failed('Could not try it as shadow', error),
  });
  return (
    <Button variant="default" disabled={!ready} loading={save.isPending} onClick={() => save.mutate()}>
      Try as shadow
    </Button>
  );
}
