import { useLayoutEffect, useRef, useState } from 'react';
import type { Verdicts } from '~/api/queries';
import type { MatrixRow, Plan, Rule } from '~/api/types';
import { patternInWords } from '~/domain/pattern';
import type { Limit } from '~/domain/rate';
import { cellId, type Draft, type Edit, modelOf, type Place, rowId, ruleAt, type Unread } from './draft';
import { GridCell } from './GridCell';
import { inForce, splitProblem } from './inForce';
import styles from './Matrix.module.css';
import { PlanHeader } from './PlanHeader';

interface Props {
  tenant: string;
  plans: Plan[];
  rows: MatrixRow[];
  draft: Draft;
  /** Invalid texts by cell. */
  unread: ReadonlyMap<string, Unread>;
  errors: Map<string, string>;
  /** What rules denied in the last hour, by rule id. */
  lastHour: Map<number, Verdicts>;
  /** The share of its rate that a rule has, by rule id, of those that adapt. */
  shares: Map<number, number>;
  editable: boolean;
  /** A row that was just added. Its first cell is edited at once. */
  added?: string;
  onEdit: (edit: Edit) => void;
  onUnread: (place: Place, unread: Unread | null) => void;
  onSplit: (row: MatrixRow) => void;
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

/** Whether a key writes a character. The first one replaces the cell, as in a spreadsheet. */
function writes({ key, ctrlKey, metaKey, altKey }: React.KeyboardEvent): boolean {
  return key.length === 1 && key !== ' ' && !ctrlKey && !metaKey && !altKey;
}

/**
 * The matrix: a row per rule, a column per plan and one for all plans. Arrows move between cells. Enter, F2
 * or typing edits a cell, Delete removes its limit, Escape cancels.
 */
export function MatrixGrid(props: Props) {
  const { tenant, plans, rows, draft, unread, errors, lastHour, shares, editable, added } = props;
  const { onEdit, onUnread, onSplit } = props;
  const table = useRef<HTMLTableElement>(null);
  const [at, setAt] = useState<Position>({ row: 0, column: 0 });
  const [editing, setEditing] = useState<{ typed?: string } | null>(null);
  // The cell to focus after the next render; until then it may still be an editor.
  const [focusing, setFocusing] = useState<Position | null>(null);
  const [begun, setBegun] = useState<string>();
  const columns = [...plans.map(({ name }) => name), null];

  if (added !== begun) {
    setBegun(added);
    const row = rows.findIndex((one) => rowId(one) === added);
    if (row >= 0) {
      setAt({ row, column: 0 });
      setEditing({});
    }
  }

  useLayoutEffect(() => {
    if (!focusing) return;
    table.current?.querySelector<HTMLElement>(`[data-cell="${focusing.row}-${focusing.column}"]`)?.focus();
    setFocusing(null);
  }, [focusing]);

  function focus(next: Position) {
    const row = Math.max(0, Math.min(next.row, rows.length - 1));
    const column = Math.max(0, Math.min(next.column, columns.length - 1));
    setAt({ row, column });
    setEditing(null);
    setFocusing({ row, column });
  }

  function edit(place: Place, base: Rule | null, limit: Limit | null) {
    const before = draft.get(cellId(place));
    onUnread(place, null);
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
    else if (free && (event.key === 'Delete' || event.key === 'Backspace')) edit(place, rule, null);
    else if (free && writes(event)) setEditing({ typed: event.key });
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
              Rule
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
                const id = cellId(place);
                const rule = ruleAt(row, plan);
                const change = draft.get(id);
                const here = at.row === rowIndex && at.column === column;
                const position = { row: rowIndex, column };
                return (
                  <GridCell
                    key={plan ?? ''}
                    tenant={tenant}
                    place={place}
                    position={`${rowIndex}-${column}`}
                    rule={rule}
                    model={modelOf(row)}
                    change={change}
                    now={inForce(row, plan, draft)}
                    unread={unread.get(id)}
                    error={errors.get(id)}
                    lastHour={rule ? lastHour.get(rule.rule_id) : undefined}
                    share={rule ? shares.get(rule.rule_id) : undefined}
                    here={here}
                    editing={here ? editing : null}
                    onFocus={() => setAt(position)}
                    onKeyDown={(event) => keys(event, position, place, rule)}
                    onOpen={() => editable && (!rule || rule.action === 'limit') && setEditing({})}
                    onSplit={editable && !splitProblem(row, plans) ? () => onSplit(row) : undefined}
                    onCancel={() => {
                      onUnread(place, null);
                      focus(position);
                    }}
                    onLeave={() => {
                      onUnread(place, null);
                      setEditing(null);
                    }}
                    onCommit={(next, how) => {
                      edit(place, rule, next);
                      if (how === 'enter') focus({ ...position, row: rowIndex + 1 });
                      else setEditing(null);
                    }}
                    onUnread={(typed) => {
                      onUnread(place, typed);
                      setEditing(null);
                    }}
                  />
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
