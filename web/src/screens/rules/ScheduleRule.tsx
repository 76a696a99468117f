import { useState } from 'react';
import type { Rule, RulePatch } from '~/api/types';
import { Effect } from '~/components/Effect';
import { LimitPair } from '~/components/LimitPair';
import { isValid } from '~/domain/rate';
import { ScheduleDialog } from '~/features/scheduled/ScheduleDialog';
import { ChangeList } from './ChangeList';
import { differences, isDirty, patch, type RuleDraft, replayed } from './ruleDraft';

interface Props {
  tenant: string;
  rule: Rule;
  /** The form's draft. If it changes nothing, the dialog asks for the limit. */
  draft: RuleDraft;
  onClose: () => void;
  onScheduled: () => void;
}

export function ScheduleRule({ tenant, rule, draft: given, onClose, onScheduled }: Props) {
  const [base] = useState(rule);
  const { rule_id, version } = base;
  const [asks] = useState(() => !isDirty(base, given));
  const [draft, setDraft] = useState(given);
  const ready = draft.action !== 'limit' || isValid(draft);
  const changed = ready && isDirty(base, draft);
  return (
    <ScheduleDialog
      tenant={tenant}
      rules={[{ rule_id, version, change: patch(base, draft) as RulePatch }]}
      disabled={!changed}
      onClose={onClose}
      onScheduled={onScheduled}
    >
      {asks && (
        <>
          <p className="soft">The limit during that time:</p>
          <LimitPair limit={draft} onChange={(part) => setDraft((before) => ({ ...before, ...part }))} />
        </>
      )}
      {changed && (
        <>
          <ChangeList of={differences(base, draft)} />
          <Effect tenant={tenant} question={{ rules: [replayed(base, draft)] }} />
        </>
      )}
    </ScheduleDialog>
  );
}
