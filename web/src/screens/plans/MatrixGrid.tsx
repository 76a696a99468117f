import { Link } from '@tanstack/react-router';
import { useRef, useState } from 'react';
import type { Verdicts } from '~/api/queries';
import type { MatrixRow, Plan, Rule } from '~/api/types';
import { IconArrowRight } from '~/components/icons';
import { patternInWords } from '~/domain/pattern';
import type { Limit } from '~/domain/rate';
import { CellEditor, CellValue } from './Cell';
import { cellId, type Draft, type Edit, type Place, rowId, ruleAt } from './draft';
import styles from './Matrix.module.css';
import { PlanHeader } from './PlanHeader';

interface Props {
  tenant: string;
  plans: Plan[];
  rows: MatrixRow[];
  draft: Draft;
  errors: Map<string, string>;
  /** What rules denied in the last hour, by rule id. */
  lately: Map<number, Verdicts>;
  editable: boolean;
  onEdit: (edit: Edit) => void;
}

interface Position {
  row: number;
  column: number;
}

const steps: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/**
 * The matrix people think in: a row per limit, a column per plan and one for all plans. Arrows walk the
 * cells; Enter, F2 or a digit edits one, Delete takes its limit away, Escape leaves it as it was.
 */
export function MatrixGrid({ tenant, plans, rows, draft, errors, lately, editable, onEdit }: Props) {
  const table = useRef<HTMLTableElement>(null);
  const [at, setAt] = useState<Position>({ row: 0, column: 0 });
  const [editing, setEditing] = useState<{ typed?: string } | null>(null);
  const columns = [...plans.map(({ name }) => name), null];

  function focus(next: Position) {
    const row = Math.max(0, Math.min(next.row, rows.length - 1));
    const column = Math.max(0, Math.min(next.column, columns.length - 1));
    setAt({ row, column });
    setEditing(null);
    const cell = `[data-cell="${row}-${column}"]`;
    requestAnimationFrame(() => table.current?.querySelector<HTMLElement>(cell)?.focus());
  }

  function edit(place: Place, base: Rule | null, limit: Limit | null) {
    const before = draft.get(cellId(place));
    onEdit({ place, base: before ? before.base : base, limit });
  }

  function keys(event: React.KeyboardEvent, position: Position, place: Place, rule: Rule | null) {
    if (event.target !== event.currentTarget) return;
    const step = steps[event.key];
    const free = editable && (!rule || rule.action === 'limit');
    if (step) focus({ row: position.row + step[0], column: position.column + step[1] });
    else if (event.key === 'Home') focus({ ...position, column: 0 });
    else if (event.key === 'End') focus({ ...position, column: columns.length - 1 });
    else if (free && (event.key === 'Enter' || event.key === 'F2')) setEditing({});
    else if (free && /^[\d.]$/.test(event.key)) setEditing({ typed: event.key });
    else if (free && (event.key === 'Delete' || event.key === 'Backspace')) edit(place, rule, null);
    else return;
    event.preventDefault();
  }

  return (
    <div className={styles.scroller} style={{ '--columns': columns.length } as React.CSSProperties}>
      <table
        ref={table}
        className={styles.matrix}
        // biome-ignore lint/a11y/noNoninteractiveElementToInteractiveRole: a grid is a table whose cells one walks
        role="grid"
        aria-label="Limits by plan"
        aria-readonly={!editable}
      >
        <thead>
          <tr>
            <th scope="col" className={styles.corner}>
              Limit
            </th>
            {plans.map((plan) => (
              <th key={plan.name} scope="col">
                <PlanHeader tenant={tenant} plan={plan} editable={editable} />
              </th>
            ))}
            <th scope="col">All plans</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, rowIndex) => (
            <tr key={rowId(row)}>
              <th scope="row">
                <span className={styles.words}>{patternInWords(row.key_pattern)}</span>
                {row.name && <span className={styles.name}>{row.name}</span>}
                <code>{row.key_pattern}</code>
              </th>
              {columns.map((plan, column) => {
                const place = { key_pattern: row.key_pattern, name: row.name, plan };
                const rule = ruleAt(row, plan);
                const change = draft.get(cellId(place));
                const limit = change ? change.limit : rule;
                const label = `${patternInWords(row.key_pattern)}${row.name && ` ${row.name}`}, ${plan ?? 'all plans'}`;
                const denials = rule ? lately.get(rule.rule_id) : undefined;
                const here = at.row === rowIndex && at.column === column;
                const position = { row: rowIndex, column };
                const error = errors.get(cellId(place));
                return (
                  <td
                    key={plan ?? ''}
                    data-cell={`${rowIndex}-${column}`}
                    data-plan={plan ?? ''}
                    data-changed={change ? true : undefined}
                    data-wrong={error ? true : undefined}
                    style={denials && !change && rule?.mode === 'enforce' ? tint(denials) : undefined}
                    tabIndex={here && !editing ? 0 : -1}
                    onFocus={(event) => event.target === event.currentTarget && setAt(position)}
                    onKeyDown={(event) => keys(event, position, place, rule)}
                    onDoubleClick={() => editable && (!rule || rule.action === 'limit') && setEditing({})}
                  >
                    {here && editing ? (
                      <CellEditor
                        label={label}
                        start={limit}
                        typed={editing.typed}
                        onCancel={() => focus(position)}
                        onCommit={(next, how) => {
                          edit(place, rule, next);
                          if (how === 'enter') focus({ ...position, row: rowIndex + 1 });
                          else setEditing(null);
                        }}
                      />
                    ) : (
                      <div className={styles.cell}>
                        <CellValue rule={rule} limit={limit} lately={denials} />
                        {change && !change.limit && <span className={styles.removed}>removed</span>}
                        {rule && !change && (
                          <Link
                            to="/t/$tenant/rules/$rule"
                            params={{ tenant, rule: String(rule.rule_id) }}
                            className={styles.open}
                            tabIndex={here ? 0 : -1}
                            aria-label={`Open the rule: ${label}`}
                          >
                            <IconArrowRight size={14} aria-hidden />
                          </Link>
                        )}
                      </div>
                    )}
                    {error && (
                      <p role="alert" className={styles.wrong}>
                        {error}
                      </p>
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The more of a limit's checks were denied, the redder its cell. */
function tint({ denied, checks }: Verdicts): React.CSSProperties {
  const share = checks > 0 ? denied / checks : 0;
  return { background: `color-mix(in srgb, var(--denied) ${Math.round(3 + share * 13)}%, var(--surface))` };
}
