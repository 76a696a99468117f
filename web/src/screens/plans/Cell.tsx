import { Tooltip } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import type { Verdicts } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { exactNumber, shortNumber } from '~/domain/format';
import {
  type Limit,
  limitProblems,
  limitSentence,
  notARate,
  parseNumber,
  parseRate,
  perUnit,
  type Rate,
  type RateUnit,
  rateShort,
} from '~/domain/rate';
import { actionLabels } from '~/domain/rule';
import type { Unread } from './draft';
import type { InForce } from './inForce';
import styles from './Matrix.module.css';

/** How many checks the limit denied lately: a number in the hue of denials, or of shadows. */
export function Denied({ rule, lately }: { rule: Rule; lately: Verdicts }) {
  const would = rule.mode === 'shadow' ? 'would have been denied' : 'were denied';
  const label = `${exactNumber(lately.denied)} of ${exactNumber(lately.checks)} checks ${would} in the last hour`;
  return (
    <Tooltip label={label}>
      <span>
        <Outcome tone={rule.mode === 'shadow' ? 'shadow' : 'denied'}>
          {shortNumber(lately.denied)}
          <span className="aside">{would} in the last hour</span>
        </Outcome>
      </span>
    </Tooltip>
  );
}

interface ValueProps {
  rule: Rule | null;
  limit: Limit | null;
  now: InForce;
  lately?: Verdicts;
}

/** What a cell shows when nobody types in it: the limit as it would be, and what it was. */
export function CellValue({ rule, limit, now, lately }: ValueProps) {
  const changed = rule ? limit !== rule : limit !== null;
  if (rule && rule.action !== 'limit') return <Always action={rule.action} />;
  return (
    <>
      {limit && <LimitText limit={limit} />}
      {changed && rule && (
        <span className={styles.was}>
          <span className="aside">was </span>
          <s>
            {rateShort(rule)} · {exactNumber(rule.burst_capacity)}
          </s>
        </span>
      )}
      {!changed && rule?.is_active && !lately && rule.mode === 'shadow' && (
        <Outcome tone="shadow">shadow</Outcome>
      )}
      {!changed && rule && lately && <Denied rule={rule} lately={lately} />}
      {!changed && rule && !rule.is_active && <Outcome tone="neutral">Off</Outcome>}
      <FromAllPlans now={now} />
      {!rule && !limit && now.kind === 'own' && <span className={styles.none}>–</span>}
    </>
  );
}

function Always({ action }: { action: 'block' | 'bypass' }) {
  return <Outcome tone={action === 'block' ? 'denied' : 'neutral'}>{actionLabels[action]}</Outcome>;
}

/** What is in force because of the rule for all plans. */
function FromAllPlans({ now }: { now: InForce }) {
  if (now.kind === 'own' || now.kind === 'held') return null;
  return (
    <span className={styles.inherited}>
      {now.kind === 'inherited' ? (
        <LimitText limit={now.all} from="All plans" />
      ) : (
        <>
          <Always action={now.kind} /> <span className={styles.burst}>All plans</span>
        </>
      )}
    </span>
  );
}

/** A limit; where it comes from, if that is not this cell. */
function LimitText({ limit, from }: { limit: Limit; from?: string }) {
  return (
    <Tooltip label={limitSentence(limit)}>
      <span className={styles.limit}>
        <span className={styles.rate}>{rateShort(limit)}</span>
        <span className={styles.burst}>
          burst {exactNumber(limit.burst_capacity)}
          {from && ` · ${from}`}
        </span>
      </span>
    </Tooltip>
  );
}

interface EditorProps {
  label: string;
  start: Limit | null;
  /** What holds while the cell is empty. */
  inherited?: Limit;
  /** What was typed here before and is no limit. */
  unread?: Unread;
  /** What was typed to begin with: it replaces the rate. */
  typed?: string;
  /** Takes the limit; how says where to go next. */
  onCommit: (limit: Limit, how: 'enter' | 'blur') => void;
  /** The cell is left as it was. */
  onLeave: () => void;
  /** The cell is left with what is no limit. */
  onUnread: (typed: Unread) => void;
  onCancel: () => void;
}

/** Two fields in the place of a cell's text: "10/s" and the burst. Enter takes them, Escape does not. */
export function CellEditor(props: EditorProps) {
  const { label, start, inherited, unread, typed, onCommit, onLeave, onUnread, onCancel } = props;
  const shown = { rate: start ? rateShort(start) : '', burst: start ? String(start.burst_capacity) : '' };
  const before = unread ?? shown;
  const [rate, setRate] = useState(typed ?? before.rate);
  const [burst, setBurst] = useState(before.burst);
  const [wrong, setWrong] = useState('');
  const box = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLInputElement>(null);

  useEffect(() => {
    first.current?.focus();
    if (typed === undefined) first.current?.select();
  }, [typed]);

  function commit(how: 'enter' | 'blur') {
    if (how === 'blur' && rate === shown.rate && burst === shown.burst) return onLeave();
    const read = readLimit(
      rate,
      burst,
      rate === shown.rate ? start : null,
      start?.rate_unit ?? inherited?.rate_unit,
    );
    if ('limit' in read) onCommit(read.limit, how);
    else if (how === 'enter') setWrong(read.wrong);
    else onUnread({ rate, burst, ...read });
  }

  function keys(event: React.KeyboardEvent) {
    event.stopPropagation();
    if (event.key === 'Enter') commit('enter');
    else if (event.key === 'Escape') onCancel();
    else return;
    event.preventDefault();
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the keys are those of the two fields inside
    <div
      ref={box}
      className={styles.editor}
      onKeyDown={keys}
      onBlur={(event) => !box.current?.contains(event.relatedTarget) && commit('blur')}
    >
      <input
        ref={first}
        aria-label={`Rate of ${label}`}
        aria-invalid={wrong !== ''}
        placeholder={inherited ? rateShort(inherited) : '10/s'}
        value={rate}
        onChange={(event) => setRate(event.target.value)}
      />
      <input
        aria-label={`Burst of ${label}`}
        aria-invalid={wrong !== ''}
        placeholder="burst"
        inputMode="numeric"
        value={burst}
        onChange={(event) => setBurst(event.target.value)}
      />
      {wrong && (
        <p role="alert" className={styles.wrong}>
          {wrong}
        </p>
      )}
    </div>
  );
}

/**
 * The limit that was typed. `same` is the rate that nobody touched, which is not read back from its text. A
 * burst that was left out is what the rate gives in its unit, at least 1.
 */
function readLimit(
  rate: string,
  burst: string,
  same: Rate | null,
  unit: RateUnit = 'second',
): { limit: Limit } | { wrong: string } {
  const read = same ?? parseRate(rate, unit);
  if (!read) return { wrong: `The rate ${notARate}.` };
  const { rate_per_second, rate_unit } = read;
  const likely = Math.max(1, Math.ceil(perUnit(read).number));
  const burst_capacity = burst.trim() === '' ? likely : parseNumber(burst);
  const limit = { rate_per_second, rate_unit, burst_capacity };
  const { rate: wrongRate, burst: wrongBurst } = limitProblems(limit);
  if (wrongRate) return { wrong: `The rate ${wrongRate}.` };
  if (wrongBurst) return { wrong: `The burst ${wrongBurst}.` };
  return { limit };
}
