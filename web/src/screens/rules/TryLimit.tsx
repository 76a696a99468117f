import { useState } from 'react';
import type { Rule } from '~/api/types';
import { Effect } from '~/components/Effect';
import { FormDialog } from '~/components/FormDialog';
import { LimitPair } from '~/components/LimitPair';
import { isValid } from '~/domain/rate';
import { ruleEffect } from '~/domain/rule';
import styles from './Rules.module.css';
import { isDirty, patch, type RuleDraft, replayed } from './ruleDraft';
import { useTryAsShadow } from './TryAsShadow';

interface Props {
  tenant: string;
  rule: Rule;
  onClose: () => void;
}

export default function TryLimit({ tenant, rule, onClose }: Props) {
  // The rest follows the live rule, so that the candidate differs from it only in the typed fields.
  const [typed, setTyped] = useState<Partial<RuleDraft>>({});
  const draft: RuleDraft = { ...rule, ...typed };
  const begin = useTryAsShadow(tenant, rule);
  const hasLimit = rule.action === 'limit';
  const ready = !hasLimit || isValid(draft);
  const changed = ready && isDirty(rule, draft);
  return (
    <FormDialog
      title="Try a limit as shadow"
      lead={
        <>
          It denies nobody. The live rule stays <strong>{ruleEffect(rule)}</strong> until you promote the candidate.
        </>
      }
      verb="Create candidate"
      disabled={!ready}
      onClose={onClose}
      save={() => begin(patch(rule, draft))}
    >
      {() => (
        <>
          {hasLimit && <LimitPair limit={draft} onChange={(part) => setTyped((before) => ({ ...before, ...part }))} />}
          <div className={styles.sentence}>
            {changed ? (
              <Effect tenant={tenant} question={{ rules: [replayed(rule, draft)] }} />
            ) : (
              'This is what the live rule does now.'
            )}
          </div>
        </>
      )}
    </FormDialog>
  );
}
