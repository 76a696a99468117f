import { Tooltip } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import type { Verdicts } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { exactNumber, shortNumber } from '~/domain/format';
import { type Limit, limitProblems, limitSentence, parseRate, perUnit, rateShort } from '~/domain/rate';
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
  lately?: Verdicts;
}

/** What a cell shows when nobody types in it: the limit as it would be, and what it was. */
export function CellValue({ rule, limit, lately }: ValueProps) {
  const changed = rule ? limit !== rule : limit !== null;
  if (rule && rule.action !== 'limit') {
    return (
      <Outcome tone={rule.action === 'block' ? 'denied' : 'neutral'}>
        {rule.action === 'block' ? 'always denied' : 'always passes'}
      </Outcome>
    );
  }
  if (!rule && !limit) return <span className={styles.none}>–</span>;
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
      {!changed && !lately && rule?.mode === 'shadow' && <Outcome tone="shadow">shadow</Outcome>}
      {!changed && rule && lately && <Denied rule={rule} lately={lately} />}
      {!changed && rule && !rule.is_active && <Outcome tone="neutral">off</Outcome>}
    </>
  );
}

function LimitText({ limit }: { limit: Limit }) {
  return (
    <Tooltip label={limitSentence(limit)}>
      <span className={styles.limit}>
        <span className={styles.rate}>{rateShort(limit)}</span>
        <span className={styles.burst}>burst {exactNumber(limit.burst_capacity)}</span>
      </span>
    </Tooltip>
  );
}

interface EditorProps {
  label: string;
  start: Limit | null;
  /** What was typed to begin with: it replaces the rate. */
  typed?: string;
  /** Takes the limit; how says where to go next. */
  onCommit: (limit: Limit, how: 'enter' | 'blur') => void;
  onCancel: () => void;
}

/** Two fields in the place of a cell's text: "10/s" and the burst. Enter takes them, Escape does not. */
export function CellEditor({ label, start, typed, onCommit, onCancel }: EditorProps) {
  const [rate, setRate] = useState(typed ?? (start ? rateShort(start) : ''));
  const [burst, setBurst] = useState(start ? String(start.burst_capacity) : '');
  const [wrong, setWrong] = useState('');
  const box = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLInputElement>(null);

  useEffect(() => {
    first.current?.focus();
    if (typed === undefined) first.current?.select();
  }, [typed]);

  function commit(how: 'enter' | 'blur') {
    if (how === 'blur' && rate === '' && burst === '') return onCancel();
    const read = readLimit(rate, burst, start);
    if ('limit' in read) onCommit(read.limit, how);
    else setWrong(read.wrong);
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
        placeholder="10/s"
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

/** A burst that was left out is what the rate gives in its unit, at least 1. */
function readLimit(rate: string, burst: string, start: Limit | null): { limit: Limit } | { wrong: string } {
  const read = parseRate(rate, start?.rate_unit ?? 'second');
  if (!read) return { wrong: 'A rate is a number per second, minute, hour or day: 10/s, 1000/day.' };
  const whole = burst.replace(/[,_ ]/g, '');
  const likely = Math.max(1, Math.ceil(perUnit(read).number));
  const limit = { ...read, burst_capacity: whole === '' ? likely : Number(whole) };
  const { rate: wrongRate, burst: wrongBurst } = limitProblems(limit);
  if (wrongRate) return { wrong: `The rate ${wrongRate}.` };
  if (wrongBurst) return { wrong: `The burst ${wrongBurst}.` };
  return { limit };
}
