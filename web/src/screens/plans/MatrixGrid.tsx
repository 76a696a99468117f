import { Fragment, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { Verdicts } from '~/api/queries';
import type { Plan, Rule, ScheduledChange } from '~/api/types';
import { meterUnit } from '~/domain/meter';
import { patternInWords, upper } from '~/domain/pattern';
import type { Limit } from '~/domain/rate';
import { ruleName } from '~/domain/rule';
import { CellEditor } from './Cell';
import { cellId, type Draft, type Edit, modelOf, type Place, type Row, rowId, ruleAt, type Unread } from './draft';
import { cellLabel, GridCell } from './GridCell';
import { type InForce, inForce, splitProblem } from './inForce';
import styles from './Matrix.module.css';
import { PlanHeader } from './PlanHeader';
import { type Position, useVisible } from './useVisible';

interface Props {
  tenant: string;
  plans: Plan[];
  rows: Row[];
  draft: Draft;
  unread: ReadonlyMap<string, Unread>;
  errors: Map<string, string>;
  lastHour: Map<string, Verdicts>;
  shares: Map<string, number>;
  candidates: Map<string, Rule>;
  scheduled: Map<string, ScheduledChange>;
  editable: boolean;
  /** The new row whose first cell is edited at once. */
  added?: string;
  onEdit: (edit: Edit) => void;
  onUnread: (place: Place, unread: Unread | null) => void;
  onSplit: (row: Row) => void;
  onMultiply: ((plan: string) => void) | null;
  onMove: (plan: Plan, to: number) => void;
  onTyping: (typing: boolean) => void;
}

const steps: Record<string, [number, number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** The type of a dragged column's data, which is the name of its plan. */
const dragged = 'text/x-plan';

const page = 10;

function writes({ key, ctrlKey, metaKey, altKey }: React.KeyboardEvent): boolean {
  return key.length === 1 && key !== ' ' && !ctrlKey && !metaKey && !altKey;
}

/** Arrows move between cells. Enter, F2, a click or typing edits a cell, Delete removes its limit, Escape cancels. */
export function MatrixGrid(props: Props) {
  const { tenant, plans, rows, draft, unread, errors, lastHour, shares, candidates, scheduled, editable, added } =
    props;
  const { onEdit, onUnread, onSplit, onMultiply, onMove, onTyping } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState<Current>({ row: 0, column: 0 });
  const [edited, setEditing] = useState<{ typed?: string } | null>(null);
  // The cell to focus after the next render; until then it may still be an editor.
  const focusing = useRef<Position | null>(null);
  const [begun, setBegun] = useState<string>();
  const columns = useMemo(() => [...plans, null], [plans]); // null: all plans
  const found = rowOf(rows, current);
  // A filter, or somebody else, can leave fewer rows.
  const at = { ...current, row: found ?? Math.max(0, Math.min(current.row, rows.length - 1)) };
  const editing = found === null ? null : edited;
  const grouped = rows.some(({ meter }) => meter !== rows[0]?.meter);
  const visible = useVisible(scroller, { rows: rows.length, columns: columns.length }, at);

  if (added !== begun) {
    setBegun(added);
    const row = rows.findIndex((one) => rowId(one) === added);
    if (row >= 0) {
      setAt({ row, column: 0 });
      setEditing({});
    }
  }

  function setAt({ row, column }: Position) {
    setCurrent({ row, column, rule: rows[row] && rowId(rows[row]) });
  }

  useLayoutEffect(() => {
    if (!focusing.current) return;
    const { row, column } = focusing.current;
    focusing.current = null;
    scroller.current?.querySelector<HTMLElement>(`[data-cell="${row}-${column}"]`)?.focus();
  });

  function focus(next: Position) {
    const row = Math.max(0, Math.min(next.row, rows.length - 1));
    const column = Math.max(0, Math.min(next.column, columns.length - 1));
    setAt({ row, column });
    setEditing(null);
    focusing.current = { row, column };
  }

  const isFree = (rule: Rule | null) => editable && (!rule || rule.action === 'limit');

  function keys(event: React.KeyboardEvent) {
    const position = positionOf(event.target);
    if (!position || !isCell(event.target)) return;
    const { place, rule } = cellAt(position);
    const step = steps[event.key];
    const free = isFree(rule);
    if (step) focus({ row: position.row + step[0], column: position.column + step[1] });
    else if (event.key === 'Home') focus({ ...position, column: 0 });
    else if (event.key === 'End') focus({ ...position, column: columns.length - 1 });
    else if (event.key === 'PageUp') focus({ ...position, row: position.row - page });
    else if (event.key === 'PageDown') focus({ ...position, row: position.row + page });
    else if (free && (event.key === 'Enter' || event.key === 'F2')) setEditing({});
    else if (free && (event.key === 'Delete' || event.key === 'Backspace')) edit(place, rule, null);
    else if (free && writes(event)) setEditing({ typed: event.key });
    else return;
    event.preventDefault();
  }

  function click({ target }: React.MouseEvent) {
    const position = positionOf(target);
    const isOnControl = (target as Element).closest('a, button, input');
    if (!position || isOnControl || (editing && isSame(position, at)) || !isFree(cellAt(position).rule)) return;
    setAt(position);
    setEditing({});
  }

  function cellAt({ row, column }: Position) {
    const plan = columns[column]?.name ?? null;
    const of = rows[row] as Row;
    return { row: of, plan, place: { key_pattern: of.key_pattern, name: of.name, plan }, rule: ruleAt(of, plan) };
  }

  function edit(place: Place, base: Rule | null, limit: Limit | null) {
    const before = draft.get(cellId(place));
    const row = rows.find((one) => rowId(one) === rowId(place));
    const counted = limit && { ...limit, meter: base?.meter ?? row?.meter };
    onUnread(place, null);
    onEdit({ base, charge: row && modelOf(row)?.charge, ...before, place, limit: counted });
  }

  function editorOf(position: Position, now: InForce) {
    const { row, plan, place, rule } = cellAt(position);
    const change = draft.get(cellId(place));
    return (
      <CellEditor
        label={cellLabel(row, plan)}
        start={change ? change.limit : rule}
        model={modelOf(row)}
        inherited={now.kind === 'inherited' ? now.all : undefined}
        unread={unread.get(cellId(place))}
        typed={editing?.typed}
        onCancel={() => {
          onUnread(place, null);
          focus(position);
        }}
        onLeave={() => {
          onUnread(place, null);
          setEditing(null);
        }}
        onCommit={(limit, how) => {
          edit(place, rule, limit);
          if (how === 'enter') focus({ ...position, row: position.row + 1 });
          else setEditing(null);
        }}
        onUnread={(typed) => {
          onUnread(place, typed);
          setEditing(null);
        }}
        onTyping={onTyping}
      />
    );
  }

  function cell(position: Position, splittable: boolean) {
    const { row, plan, place, rule } = cellAt(position);
    const id = cellId(place);
    const here = isSame(at, position);
    const now = inForce(row, plan, draft, plans);
    return (
      <GridCell
        tenant={tenant}
        row={row}
        plan={plan}
        at={position}
        rule={rule}
        change={draft.get(id)}
        now={now}
        unread={unread.get(id)}
        editor={here && editing ? editorOf(position, now) : null}
        error={errors.get(id)}
        lastHour={rule ? lastHour.get(rule.rule_id) : undefined}
        share={rule ? shares.get(rule.rule_id) : undefined}
        candidate={rule ? candidates.get(rule.rule_id) : undefined}
        scheduled={rule ? scheduled.get(rule.rule_id) : undefined}
        here={here}
        onSplit={splittable ? onSplit : undefined}
      />
    );
  }

  return (
    <div ref={scroller} className={styles.scroller}>
      <table
        className={styles.matrix}
        style={{ '--columns': columns.length } as React.CSSProperties}
        data-wide={visible.wide || undefined}
        data-whole={visible.whole || undefined}
        // biome-ignore lint/a11y/noNoninteractiveElementToInteractiveRole: a grid is a table whose cells one walks
        role="grid"
        aria-label="Limits by plan"
        aria-readonly={!editable}
        aria-rowcount={rows.length + 1}
        aria-colcount={columns.length + 1}
        // The cells' events are handled here, so that a cell is drawn again only when its content changes.
        onFocus={({ target }) => {
          const position = positionOf(target);
          if (position && isCell(target) && !isSame(position, at)) setAt(position);
        }}
        onKeyDown={keys}
        onClick={click}
      >
        <colgroup>
          <col className={styles.first} />
          <col span={columns.length} />
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col" className={styles.corner} aria-colindex={1}>
              Rule
            </th>
            {visible.columns.map(({ index, skipped }) => {
              const plan = columns[index];
              return (
                <Fragment key={plan?.name ?? ''}>
                  <SkippedColumns count={skipped} />
                  <th
                    scope="col"
                    aria-colindex={index + 2}
                    draggable={editable && plan !== null && plan !== undefined}
                    onDragStart={(event) => plan && event.dataTransfer.setData(dragged, plan.name)}
                    onDragOver={(event) => plan && event.dataTransfer.types.includes(dragged) && event.preventDefault()}
                    onDrop={(event) => {
                      const moved = plans.find(({ name }) => name === event.dataTransfer.getData(dragged));
                      if (moved) onMove(moved, index);
                    }}
                  >
                    {plan ? (
                      <PlanHeader
                        tenant={tenant}
                        plan={plan}
                        plans={plans}
                        editable={editable}
                        onMultiply={onMultiply && (() => onMultiply(plan.name))}
                        onMove={onMove}
                      />
                    ) : (
                      'All plans'
                    )}
                  </th>
                </Fragment>
              );
            })}
            <SkippedColumns count={visible.columnsAfter} />
          </tr>
        </thead>
        <tbody>
          {visible.rows.map(({ index, skipped }) => {
            const row = rows[index];
            if (!row) return null;
            const splittable = editable && !splitProblem(row, plans);
            const begins = grouped && rows[index - 1]?.meter !== row.meter;
            return (
              <Fragment key={rowId(row)}>
                <SkippedRows height={skipped} columns={columns.length + 1} />
                {begins && (
                  <tr aria-hidden>
                    <td colSpan={columns.length + 1} className={styles.group}>
                      <span>{upper(meterUnit(row.meter) || 'requests')}</span>
                    </td>
                  </tr>
                )}
                <tr
                  ref={visible.measureRow}
                  data-index={index}
                  data-begins={begins || undefined}
                  aria-rowindex={index + 2}
                >
                  <th scope="row" aria-colindex={1}>
                    <span className={styles.words}>{patternInWords(row.key_pattern)}</span>
                    {ruleName(row) && <span className={styles.name}>{ruleName(row)}</span>}
                    <code>{row.key_pattern}</code>
                  </th>
                  {visible.columns.map((column) => (
                    <Fragment key={columns[column.index]?.name ?? ''}>
                      <SkippedColumns count={column.skipped} />
                      {cell({ row: index, column: column.index }, splittable)}
                    </Fragment>
                  ))}
                  <SkippedColumns count={visible.columnsAfter} />
                </tr>
              </Fragment>
            );
          })}
          <SkippedRows height={visible.rowsAfter} columns={columns.length + 1} />
        </tbody>
      </table>
    </div>
  );
}

interface Current extends Position {
  rule?: string;
}

/** Where the current row is after others came or went; null if it went itself. */
function rowOf(rows: Row[], { row, rule }: Current): number | null {
  const is = (one: Row | undefined) => one !== undefined && (rule === undefined || rowId(one) === rule);
  if (is(rows[row])) return row;
  const moved = rows.findIndex(is);
  return moved < 0 ? null : moved;
}

const isCell = (target: EventTarget) => (target as Element).hasAttribute('data-cell');

const isSame = (a: Position, b: Position) => a.row === b.row && a.column === b.column;

/** The cell that an element is in; null for those of the header, and of tooltips. */
function positionOf(target: EventTarget): Position | null {
  const cell = (target as Element).closest<HTMLElement>('[data-cell]')?.dataset.cell;
  const [row, column] = cell?.split('-').map(Number) ?? [];
  return row === undefined || column === undefined ? null : { row, column };
}

function SkippedColumns({ count }: { count: number }) {
  return count > 0 ? <td aria-hidden colSpan={count} className={styles.skipped} /> : null;
}

function SkippedRows({ height, columns }: { height: number; columns: number }) {
  if (height <= 0) return null;
  return (
    <tr aria-hidden>
      <td colSpan={columns} className={styles.skipped} style={{ height }} />
    </tr>
  );
}
