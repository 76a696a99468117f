import { Select, TextInput } from '@mantine/core';
import { useState } from 'react';
import type { MatrixRow, Plan } from '~/api/types';
import { FormDialog } from '~/components/FormDialog';
import { plural } from '~/domain/format';
import { isValid, parseNumber, times } from '~/domain/rate';
import { ruleTitle } from '~/domain/rule';
import { cellId, type Draft, type Edit, edited, ruleAt } from './draft';

const allPlans = '*';

/** Sets a plan's limits to multiples of a plan's, by default its own. */
export function multiplied(
  draft: Draft,
  rows: MatrixRow[],
  plan: string | null,
  factor: number,
  from: string | null = plan,
) {
  let next = draft;
  let changed = 0;
  let refused = 0;
  const leftAlone: MatrixRow[] = [];
  for (const row of rows) {
    const place = { key_pattern: row.key_pattern, name: row.name, plan };
    const before = draft.get(cellId(place));
    const base = before ? before.base : ruleAt(row, plan);
    const source = ruleAt(row, from);
    const draftOfSource = draft.get(cellId({ ...place, plan: from }));
    const limit = draftOfSource ? draftOfSource.limit : source?.action === 'limit' ? source : null;
    if (!limit) {
      leftAlone.push(row);
      continue;
    }
    const higher = times(limit, factor);
    if (!isValid(higher)) {
      refused++;
      continue;
    }
    changed++;
    const edit: Edit = { place, base, limit: higher, like: base ? undefined : (before?.like ?? source ?? undefined) };
    next = edited(next, edit);
  }
  return { draft: next, changed, refused, leftAlone };
}

function planOf(choice: string): string | null {
  return choice === allPlans ? null : choice;
}

interface Props {
  rows: MatrixRow[];
  plans: Plan[];
  draft: Draft;
  plan: string | undefined;
  onClose: () => void;
  onChanged: (draft: Draft) => void;
}

export function ChangeMany({ rows, plans, draft, plan: begin, onClose, onChanged }: Props) {
  const [plan, setPlan] = useState(begin ?? plans[0]?.name ?? allPlans);
  const [from, setFrom] = useState<string>();
  const [typed, setTyped] = useState('2');
  const factor = parseNumber(typed);
  const isFactor = factor > 0 && factor <= 1000;
  const choices = [...plans.map(({ name }) => ({ value: name, label: name })), { value: allPlans, label: 'All plans' }];
  const result = isFactor ? multiplied(draft, rows, planOf(plan), factor, planOf(from ?? plan)) : null;
  return (
    <FormDialog
      title="Copy or multiply limits"
      lead="Nothing is saved before the review."
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
            data={choices}
          />
          <Select
            label="Copy from plan"
            searchable
            allowDeselect={false}
            value={from ?? plan}
            onChange={(value) => {
              setFrom(value ?? undefined);
              if (!from) setTyped('1');
            }}
            data={choices.map((one) => (one.value === plan ? { ...one, label: `${one.label} (itself)` } : one))}
          />
          <TextInput
            label="Times"
            description="2 doubles the limits, 0.5 halves them."
            inputMode="decimal"
            value={typed}
            error={isFactor ? undefined : 'must be a number above 0, at most 1,000'}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          {result && result.leftAlone.length > 0 && (
            <p className="soft" role="status">
              {leftAloneSentence(result.leftAlone, from ?? plan, rows.length)}
            </p>
          )}
          {result && result.refused > 0 && (
            <p role="status">{plural(result.refused, 'limit')} would be out of range and would stay.</p>
          )}
        </>
      )}
    </FormDialog>
  );
}

/** "2 of 3 rules stay as they are, because pro has no limit of its own there: Each user and Each address · daily." */
function leftAloneSentence(rows: MatrixRow[], plan: string, of: number): string {
  const names = rows.slice(0, 3).map(ruleTitle);
  if (rows.length > names.length) names.push(`${rows.length - names.length} more`);
  const last = names.pop();
  const listed = names.length > 0 ? `${names.join(', ')} and ${last}` : last;
  const stay = rows.length === 1 ? 'stays as it is' : 'stay as they are';
  const missing = plan === allPlans ? 'there is no limit for all plans' : `${plan} has no limit of its own`;
  return `${rows.length} of ${plural(of, 'rule')} ${stay}, because ${missing} there: ${listed}.`;
}
