import { Button } from '@mantine/core';
import { useState } from 'react';
import type { Rule } from '~/api/types';
import { EffectLine } from '~/components/Effect';
import { ruleLabel } from '~/domain/rule';
import { StartReplay } from '~/features/replay/StartReplay';
import { differences, type RuleDraft, replayed } from './ruleDraft';

interface Props {
  tenant: string;
  rule: Rule;
  draft: RuleDraft;
}

export function DraftEffect({ tenant, rule, draft }: Props) {
  const [replaying, setReplaying] = useState(false);
  const candidate = { rules: [replayed(rule, draft)] };
  const changes = differences(rule, draft).map(({ label, to }) => `${label} ${to}`);
  return (
    <>
      <EffectLine tenant={tenant} question={candidate}>
        <div>
          <Button variant="default" size="compact-sm" onClick={() => setReplaying(true)}>
            Replay all
          </Button>
        </div>
      </EffectLine>
      {replaying && (
        <StartReplay
          tenant={tenant}
          candidate={candidate}
          title={`${ruleLabel(rule)}: ${changes.join(', ')}`.slice(0, 200)}
          onClose={() => setReplaying(false)}
        />
      )}
    </>
  );
}
