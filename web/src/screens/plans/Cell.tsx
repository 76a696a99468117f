import { Tooltip } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import { serverNow } from '~/api/clock';
import type { Verdicts } from '~/api/queries';
import type { Rule } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { isPlain } from '~/domain/algorithm';
import { exactNumber, shortNumber } from '~/domain/format';
import { hasExpired } from '~/domain/group';
import {
  hasRate,
  type Limit,
  likelyBurst,
  limitProblems,
  limitSentence,
  limitShort,
  notARate,
  parseNumber,
  parseRate,
  type Rate,
  rateShort,
  shapeOf,
  shortAmount,
} from '~/domain/rate';
import { actionLabels } from '~/domain/rule';
import type { Unread } from './draft';
import type { InForce } from './inForce';
import styles from './Matrix.module.css';

export function Denied({ rule, lastHour }: { rule: Rule; lastHour: Verdicts }) {
  const isShadow = rule.mode === 'shadow';
  const would = isShadow ? 'would have been denied' : 'were denied';
  const label = `${exactNumber(lastHour.denied)} of ${exactNumber(lastHour.checks)} checks ${would} in the last hour`;
  return (
    <Tooltip position="bottom" label={label}>
      <span>
        <Outcome tone={isShadow ? 'shadow' : 'denied'}>
          {shortNumber(lastHour.denied)} {isShadow ? 'would deny' : 'denied'}
          <span className="aside"> in the last hour</span>
        </Outcome>
      </span>
    </Tooltip>
  );
}

interface ValueProps {
  rule: Rule | null;
  limit: Limit | null;
  now: InForce;
  lastHour?: Verdicts;
  share?: number;
}

export function CellValue({ rule, limit, now, lastHour, share }: ValueProps) {
  const changed = rule ? limit !== rule : limit !== null;
  if (rule && rule.action !== 'limit') {
    return (
      <>
        {rule.is_active ? <Always action={rule.action} mode={rule.mode} /> : <Idle rule={rule} />}
        <FromAllPlans now={now} />
      </>
    );
  }
  return (
    <>
      {limit && <LimitText limit={limit} />}
      {changed && rule && (
        <span className={styles.was}>
          <span className="aside">was </span>
          <s>
            {limitShort(rule)}
            {hasRate(rule.algorithm) && ` · ${shortAmount(rule.burst_capacity, rule.meter)}`}
          </s>
        </span>
      )}
      {!changed && rule?.is_active && !lastHour && rule.mode === 'shadow' && <Outcome tone="shadow">shadow</Outcome>}
      {!changed && rule && share !== undefined && share < 100 && (
        <Tooltip position="bottom" label={`The rule adapts: its rate is ${share} % of this for now`}>
          <span>
            <Outcome tone="degraded">{share} % for now</Outcome>
          </span>
        </Tooltip>
      )}
      {!changed && rule && lastHour && <Denied rule={rule} lastHour={lastHour} />}
      {!changed && rule && !rule.is_active && <Idle rule={rule} />}
      <FromAllPlans now={now} />
      {!rule && !limit && now.kind === 'own' && <span className={styles.none}>–</span>}
    </>
  );
}

function Always({ action, mode }: { action: 'block' | 'bypass'; mode?: Rule['mode'] }) {
  const tone = mode === 'shadow' ? 'shadow' : action === 'block' ? 'denied' : 'neutral';
  return <Outcome tone={tone}>{actionLabels[action]}</Outcome>;
}

function Idle({ rule }: { rule: Rule }) {
  return <Outcome tone="neutral">{hasExpired(rule, serverNow()) ? 'Expired' : 'Off'}</Outcome>;
}

function FromAllPlans({ now }: { now: InForce }) {
  if (now.kind === 'own' || now.kind === 'held') return null;
  if (now.kind === 'raised') return <span className={styles.burst}>the others stay {limitShort(now.all)}</span>;
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

function LimitText({ limit, from }: { limit: Limit; from?: string }) {
  return (
    // A title: a component for each of hundreds of cells would be most of the time to draw them.
    <span className={styles.limit} title={limitSentence(limit)}>
      <span className={styles.rate}>{limitShort(limit)}</span>
      <span className={styles.burst}>{[besides(limit), from].filter(Boolean).join(' · ')}</span>
    </span>
  );
}

function besides(limit: Limit): string {
  const burst = shortAmount(limit.burst_capacity, limit.meter);
  switch (limit.algorithm) {
    case 'leaky_bucket':
      return `queue ${burst}`;
    case 'sliding_window':
    case 'sliding_window_log':
      return 'sliding';
    case 'fixed_window':
    case 'concurrency':
      return '';
    default:
      return `burst ${burst}`;
  }
}

interface EditorProps {
  label: string;
  /** The kind of limit of the row; null: a rate and a burst. */
  model: Limit | null;
  start: Limit | null;
  /** The limit that applies while the cell is empty. */
  inherited?: Limit;
  unread?: Unread;
  typed?: string;
  /** Commits the limit; `how` decides where the focus goes. */
  onCommit: (limit: Limit, how: 'enter' | 'blur') => void;
  onLeave: () => void;
  onUnread: (typed: Unread) => void;
  onCancel: () => void;
  onTyping: (typing: boolean) => void;
}

export function CellEditor(props: EditorProps) {
  const { label, start, inherited, unread, typed, onCommit, onLeave, onUnread, onCancel, onTyping } = props;
  const model = start ?? inherited ?? props.model;
  const withRate = hasRate(model?.algorithm);
  // The burst of the rate follows the rate, as if it were left empty again.
  const follows = start !== null && withRate && start.burst_capacity === likelyBurst(start);
  const shown = {
    rate: start && withRate ? rateShort(start) : '',
    burst: start && !follows ? String(start.burst_capacity) : '',
  };
  const before = unread ?? shown;
  const [rate, setRate] = useState((withRate && typed) || before.rate);
  const [burst, setBurst] = useState((!withRate && typed) || before.burst);
  const [wrong, setWrong] = useState('');
  const read = withRate ? parseRate(rate, model?.rate_unit ?? 'second') : null;
  const likely = read && burstFor(read, model);
  const box = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLInputElement>(null);

  useEffect(() => {
    first.current?.focus();
    if (typed === undefined) first.current?.select();
  }, [typed]);

  const typing = rate !== shown.rate || burst !== shown.burst;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the grid's actions are the same for as long as it lives
  useEffect(() => {
    onTyping(typing);
    return () => onTyping(false);
  }, [typing]);

  function commit(how: 'enter' | 'blur') {
    if (how === 'blur' && !typing) return onLeave();
    const read = withRate
      ? readLimit(model, rate, burst, rate === shown.rate ? start : null)
      : checked({
          ...shapeOf(model as Limit),
          rate_per_second: 0,
          rate_unit: 'second',
          burst_capacity: parseNumber(burst),
        });
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
      {withRate && (
        <label>
          <span>Rate</span>
          <input
            ref={first}
            aria-label={`Rate of ${label}`}
            aria-invalid={wrong !== ''}
            placeholder={`e.g. ${inherited ? rateShort(inherited) : '10/s'}`}
            value={rate}
            onChange={(event) => setRate(event.target.value)}
          />
        </label>
      )}
      <label>
        <span>Burst</span>
        <input
          ref={withRate ? undefined : first}
          aria-label={`Burst of ${label}`}
          aria-invalid={wrong !== ''}
          placeholder={likely === null ? 'e.g. 50' : `auto: ${likely}`}
          inputMode="numeric"
          value={burst}
          onChange={(event) => setBurst(event.target.value)}
        />
      </label>
      {wrong && (
        <p role="alert" className={styles.wrong}>
          {wrong}
        </p>
      )}
    </div>
  );
}

/** `same` is the unchanged rate, which is not parsed back from its text. */
function readLimit(model: Limit | null, rate: string, burst: string, same: Rate | null): Read {
  const read = same ?? parseRate(rate, model?.rate_unit ?? 'second');
  if (!read) return { wrong: `The rate ${notARate}.` };
  const { rate_per_second, rate_unit } = read;
  const burst_capacity = burst.trim() === '' ? burstFor(read, model) : parseNumber(burst);
  return checked({
    ...(model && !isPlain(model) && shapeOf(model)),
    rate_per_second,
    rate_unit,
    burst_capacity,
  });
}

/** The burst of a typed rate, which is not below that of the limit which it replaces, unless the rate is. */
function burstFor(rate: Rate, model: Limit | null): number {
  const isRaised = model && hasRate(model.algorithm) && rate.rate_per_second >= model.rate_per_second;
  return Math.max(likelyBurst(rate), isRaised ? model.burst_capacity : 0);
}

type Read = { limit: Limit } | { wrong: string };

function checked(limit: Limit): Read {
  const { rate: wrongRate, burst: wrongBurst } = limitProblems(limit);
  if (wrongRate) return { wrong: `The rate ${wrongRate}.` };
  if (wrongBurst) return { wrong: `The burst ${wrongBurst}.` };
  return { limit };
}
