import { Tooltip } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import type { Verdicts } from '~/api/queries';
import type { Rule } from '~/api/types';
import { IconAlert, IconArrowRight } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { patternInWords } from '~/domain/pattern';
import { type Limit, limitSentence } from '~/domain/rate';
import { ruleEffect } from '~/domain/rule';
import { CellEditor, CellValue } from './Cell';
import type { Edit, Place, Unread } from './draft';
import { heldTo, type InForce } from './inForce';
import styles from './Matrix.module.css';

interface Props {
  tenant: string;
  place: Place;
  /** The position: "row-column". */
  position: string;
  /** The number of the column, from 1 for the rules. */
  index: number;
  rule: Rule | null;
  /** The kind of limit of the row. */
  model: Limit | null;
  change: Edit | undefined;
  now: InForce;
  unread: Unread | undefined;
  error: string | undefined;
  lastHour: Verdicts | undefined;
  /** Of the rule’s rate, in percent. */
  share: number | undefined;
  /** Tried beside the rule. */
  candidate: Rule | undefined;
  /** The cell has the keyboard focus of the grid. */
  here: boolean;
  editing: { typed?: string } | null;
  onFocus: () => void;
  onKeyDown: (event: React.KeyboardEvent) => void;
  onOpen: () => void;
  /** Undefined if the limit for all plans cannot be split. */
  onSplit: (() => void) | undefined;
  onCancel: () => void;
  onLeave: () => void;
  onCommit: (limit: Limit, how: 'enter' | 'blur') => void;
  onUnread: (typed: Unread) => void;
}

/** One cell: the limit in force, the change, or the editor. */
export function GridCell(props: Props) {
  const { tenant, place, position, index, rule, change, now, unread, error, lastHour, share, here, editing } =
    props;
  const { candidate } = props;
  const limit = change ? change.limit : rule;
  const label = `${patternInWords(place.key_pattern)}${place.name && ` ${place.name}`}, ${place.plan ?? 'all plans'}`;
  const wrong = error ?? unread?.wrong;
  return (
    <td
      data-cell={position}
      aria-colindex={index}
      data-plan={place.plan ?? ''}
      data-changed={change ? true : undefined}
      data-wrong={wrong ? true : undefined}
      style={lastHour && !change && rule?.mode === 'enforce' ? tint(lastHour) : undefined}
      tabIndex={here && !editing ? 0 : -1}
      onFocus={(event) => event.target === event.currentTarget && props.onFocus()}
      onKeyDown={props.onKeyDown}
      onDoubleClick={props.onOpen}
    >
      {editing ? (
        <CellEditor
          label={label}
          start={limit}
          model={props.model}
          inherited={now.kind === 'inherited' ? now.all : undefined}
          unread={unread}
          typed={editing.typed}
          onCancel={props.onCancel}
          onLeave={props.onLeave}
          onCommit={props.onCommit}
          onUnread={props.onUnread}
        />
      ) : (
        <div className={styles.cell}>
          {unread ? (
            <span className={styles.rate}>{[unread.rate, unread.burst].filter(Boolean).join(' · ')}</span>
          ) : (
            <CellValue rule={rule} limit={limit} now={now} lastHour={lastHour} share={share} />
          )}
          {change?.shadow && change.limit && <Outcome tone="shadow">shadow</Outcome>}
          {candidate && !change && (
            <Tooltip label={`Tried as shadow: ${ruleEffect(candidate)}`}>
              <Link
                to="/t/$tenant/rules/$rule"
                params={{ tenant, rule: String(candidate.rule_id) }}
                tabIndex={here ? 0 : -1}
                aria-label={`Open the candidate: ${label}`}
              >
                <Outcome tone="shadow">candidate</Outcome>
              </Link>
            </Tooltip>
          )}
          {change && !change.limit && <span className={styles.removed}>removed</span>}
          {now.kind === 'held' && <Held own={now.own} all={now.all} onSplit={props.onSplit} here={here} />}
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
      {wrong && !editing && (
        <p role="alert" className={styles.wrong}>
          {wrong}
        </p>
      )}
    </td>
  );
}

interface HeldProps {
  own: Limit;
  all: Limit;
  here: boolean;
  onSplit: (() => void) | undefined;
}

/** Warns that the limit for all plans is lower, and offers to split it. */
function Held({ own, all, here, onSplit }: HeldProps) {
  return (
    <span className={styles.held}>
      <Tooltip
        multiline
        w={260}
        label={`Every matching rule applies. The limit for all plans, ${limitSentence(all)}, is lower.`}
      >
        <span>
          <IconAlert size={13} stroke={2} aria-hidden /> Limited to {heldTo(own, all)} by All plans
        </span>
      </Tooltip>
      {onSplit && (
        <button
          type="button"
          tabIndex={here ? 0 : -1}
          aria-label="Split All plans: give each plan its own limit"
          onClick={onSplit}
        >
          Split All plans
        </button>
      )}
    </span>
  );
}

/** The background: redder as the share of denied checks grows. */
function tint({ denied, checks }: Verdicts): React.CSSProperties {
  const share = checks > 0 ? denied / checks : 0;
  return { background: `color-mix(in srgb, var(--denied) ${Math.round(3 + share * 13)}%, var(--surface))` };
}
