import { Tooltip } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { memo } from 'react';
import type { Verdicts } from '~/api/queries';
import type { Rule, ScheduledChange } from '~/api/types';
import { Ends } from '~/components/Ends';
import { IconAlert, IconArrowRight } from '~/components/icons';
import { Outcome } from '~/components/Outcome';
import { meterUnit } from '~/domain/meter';
import { patternInWords } from '~/domain/pattern';
import { type Limit, limitSentence } from '~/domain/rate';
import { ruleEffect, ruleName } from '~/domain/rule';
import { whenWords } from '~/domain/scheduled';
import { CellValue } from './Cell';
import type { Edit, Row, Unread } from './draft';
import { heldTo, type InForce } from './inForce';
import styles from './Matrix.module.css';
import type { Position } from './useVisible';

interface Props {
  tenant: string;
  row: Row;
  /** null: all plans. */
  plan: string | null;
  at: Position;
  rule: Rule | null;
  change: Edit | undefined;
  now: InForce;
  unread: Unread | undefined;
  editor: React.ReactNode;
  error: string | undefined;
  lastHour: Verdicts | undefined;
  share: number | undefined;
  candidate: Rule | undefined;
  scheduled: ScheduledChange | undefined;
  here: boolean;
  /** Splits the limit for all plans; undefined where it cannot be. */
  onSplit: ((row: Row) => void) | undefined;
}

export const GridCell = memo(
  DrawnCell,
  ({ at, now, ...before }, { at: atAfter, now: nowAfter, ...after }) =>
    same(at, atAfter) && same(now, nowAfter) && same(before, after),
);

function same(a: object, b: object): boolean {
  const [before, after] = [Object.entries(a), new Map(Object.entries(b))];
  return before.length === after.size && before.every(([name, value]) => after.get(name) === value);
}

function DrawnCell(props: Props) {
  const { tenant, row, plan, at, rule, change, now, unread, error, lastHour, share, here, editor } = props;
  const { candidate, scheduled, onSplit } = props;
  const limit = change ? change.limit : rule;
  const label = cellLabel(row, plan);
  const wrong = error ?? unread?.wrong;
  return (
    <td
      data-cell={`${at.row}-${at.column}`}
      aria-colindex={at.column + 2}
      data-plan={plan ?? ''}
      data-changed={change ? true : undefined}
      data-wrong={wrong ? true : undefined}
      style={lastHour && !change && rule?.mode === 'enforce' ? tint(lastHour) : undefined}
      tabIndex={here && !editor ? 0 : -1}
    >
      {editor ?? (
        <div className={styles.cell}>
          {unread ? (
            <span className={styles.rate}>{[unread.rate, unread.burst].filter(Boolean).join(' · ')}</span>
          ) : (
            <CellValue rule={rule} limit={limit} now={now} lastHour={lastHour} share={share} />
          )}
          {rule && rule.meter !== row.meter && (
            <span className={styles.name}>{meterUnit(rule.meter) || 'requests'}</span>
          )}
          {change?.shadow && change.limit && <Outcome tone="shadow">shadow</Outcome>}
          {candidate && !change && (
            <Tooltip position="bottom" label={`Tried as shadow: ${ruleEffect(candidate)}`}>
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
          {rule?.expires_at && !change && <Ends at={rule.expires_at} />}
          {scheduled?.state === 'in_force' && scheduled.ends_at && !change && (
            <Ends at={scheduled.ends_at} verb="goes back" />
          )}
          {scheduled?.state === 'waiting' && !change && (
            <Tooltip position="bottom" label={`A change is scheduled: ${whenWords(scheduled)}`}>
              <span>
                <Outcome tone="neutral">scheduled</Outcome>
              </span>
            </Tooltip>
          )}
          {change && !change.limit && <span className={styles.removed}>removed</span>}
          {now.kind === 'held' && (
            <Held own={now.own} all={now.all} onSplit={onSplit && (() => onSplit(row))} here={here} />
          )}
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
      {wrong && !editor && (
        <p role="alert" className={styles.wrong}>
          {wrong}
        </p>
      )}
    </td>
  );
}

export function cellLabel(row: Row, plan: string | null): string {
  const called = [patternInWords(row.key_pattern), ruleName(row)].filter(Boolean).join(' ');
  return `${called}, ${plan ?? 'all plans'}`;
}

interface HeldProps {
  own: Limit;
  all: Limit;
  here: boolean;
  onSplit: (() => void) | undefined;
}

function Held({ own, all, here, onSplit }: HeldProps) {
  return (
    <span className={styles.held}>
      <Tooltip
        position="bottom" // above it is the limit that was just typed
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
          className="link-button"
          tabIndex={here ? 0 : -1}
          aria-label="Separate limits: give each plan its own limit"
          onClick={onSplit}
        >
          Separate limits
        </button>
      )}
    </span>
  );
}

function tint({ denied, checks }: Verdicts): React.CSSProperties {
  const share = checks > 0 ? denied / checks : 0;
  return { background: `color-mix(in srgb, var(--denied) ${Math.round(3 + share * 13)}%, var(--surface))` };
}
