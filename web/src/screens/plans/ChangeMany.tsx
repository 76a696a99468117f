import { Select, TextInput } from '@mantine/core';
import { useState } from 'react';
import type { MatrixRow, Plan } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { plural } from '~/domain/format';
import { isValid, parseNumber, times } from '~/domain/rate';
import { cellId, type Draft, type Edit, edited, ruleAt } from './draft';

const allPlans = '*';

/** The draft in which the limits of one plan in some rows are so many times as high. Cells without a limit stay empty. */
export function multiplied(draft: Draft, rows: MatrixRow[], plan: string | null, factor: number) {
  let next = draft;
  let changed = 0;
  let refused = 0;
  for (const row of rows) {
    const place = { key_pattern: row.key_pattern, name: row.name, plan };
    const before = draft.get(cellId(place));
    const rule = ruleAt(row, plan);
    const limit = before ? before.limit : rule?.action === 'limit' ? rule : null;
    if (!limit) continue;
    const higher = times(limit, factor);
    if (!isValid(higher)) {
      refused++;
      continue;
    }
    changed++;
    const edit: Edit = before ? { ...before, limit: higher } : { place, base: rule, limit: higher };
    next = edited(next, edit);
  }
  return { draft: next, changed, refused };
}

interface Props {
  rows: MatrixRow[];
  plans: Plan[];
  draft: Draft;
  /** The plan to begin with; undefined: the first. */
  plan: string | undefined;
  onClose: () => void;
  onChanged: (draft: Draft) => void;
}

/** Multiplies the limits of a plan in all rows that are shown. The draft takes them, to be reviewed and saved as others. */
export function ChangeMany({ rows, plans, draft, plan: begin, onClose, onChanged }: Props) {
  const [plan, setPlan] = useState(begin ?? plans[0]?.name ?? allPlans);
  const [typed, setTyped] = useState('2');
  const factor = parseNumber(typed);
  const isFactor = factor > 0 && factor <= 1000;
  const result = isFactor ? multiplied(draft, rows, plan === allPlans ? null : plan, factor) : null;
  return (
    <FormDialog
      title={`Multiply the limits of ${plural(rows.length, 'rule')}`}
      lead="Multiplies rates and bursts of one plan in every rule that is shown. Nothing is saved before the review."
      verb={result ? `Change ${plural(result.changed, 'limit')}` : 'Change'}
      disabled={!result?.changed}
      onClose={onClose}
      save={async () => result && onChanged(result.draft)}
    >
      {() => (
        <>
          <Select
            label="Plan"
            searchable
            allowDeselect={false}
            value={plan}
            onChange={(value) => value && setPlan(value)}
            data={[
              ...plans.map(({ name }) => ({ value: name, label: name })),
              { value: allPlans, label: 'All plans' },
            ]}
          />
          <TextInput
            label="Times"
            description="2 doubles the limits, 0.5 halves them."
            inputMode="decimal"
            value={typed}
            error={isFactor ? undefined : 'must be a number above 0, at most 1,000'}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          {result && result.refused > 0 && (
            <p role="status">{plural(result.refused, 'limit')} would be out of range and would stay.</p>
          )}
        </>
      )}
    </FormDialog>
  );
}
