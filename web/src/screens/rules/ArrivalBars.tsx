import { useRef } from 'react';
import { duration, exactNumber } from '~/domain/format';
import type { Arrivals } from './arrivals';
import styles from './BucketPicture.module.css';

interface Props {
  arrivals: Arrivals;
  /** Denied requests per slice. */
  denied: number[];
  onChange: (arrivals: Arrivals) => void;
}

/** A bar per slice with the number of requests. Drag over the bars or use the arrow keys. */
export function ArrivalBars({ arrivals, denied, onChange }: Props) {
  const { counts, most, sliceMs } = arrivals;
  const box = useRef<HTMLDivElement>(null);

  function set(index: number, count: number) {
    const next = Math.max(0, Math.min(most, count));
    if (next !== counts[index]) onChange({ ...arrivals, counts: counts.with(index, next) });
  }

  function drag(event: React.PointerEvent) {
    if (!box.current || (event.type === 'pointermove' && event.buttons !== 1)) return;
    if (event.type === 'pointerdown') event.currentTarget.setPointerCapture(event.pointerId);
    const { left, top, width, height } = box.current.getBoundingClientRect();
    const index = Math.floor(((event.clientX - left) / width) * counts.length);
    const share = 1 - (event.clientY - top) / height;
    if (index >= 0 && index < counts.length) set(index, Math.round(share * most));
  }

  function keys(event: React.KeyboardEvent, index: number) {
    const count = counts[index] ?? 0;
    const large = Math.max(1, Math.round(most / 10));
    const steps: Record<string, number> = {
      ArrowUp: 1,
      ArrowDown: -1,
      PageUp: large,
      PageDown: -large,
      Home: -count,
      End: most,
    };
    const side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (side) (box.current?.children[index + side] as HTMLElement | undefined)?.focus();
    else if (steps[event.key] !== undefined) set(index, count + (steps[event.key] as number));
    else return;
    event.preventDefault();
  }

  return (
    <div ref={box} className={styles.bars} onPointerDown={drag} onPointerMove={drag}>
      {counts.map((count, index) => {
        const lost = Math.min(count, denied[index] ?? 0);
        const at = duration(index * sliceMs);
        return (
          <div
            // biome-ignore lint/suspicious/noArrayIndexKey: a slice is its place in time
            key={index}
            role="slider"
            tabIndex={index === 0 ? 0 : -1}
            aria-label={`Requests from ${at} on`}
            aria-orientation="vertical"
            aria-valuemin={0}
            aria-valuemax={most}
            aria-valuenow={count}
            aria-valuetext={`${exactNumber(count)} requests, ${exactNumber(lost)} denied`}
            title={`${exactNumber(count)} requests, ${exactNumber(lost)} denied`}
            className={styles.slice}
            onKeyDown={(event) => keys(event, index)}
          >
            <span className={styles.denied} style={{ height: `${(lost / most) * 100}%` }} />
            <span className={styles.allowed} style={{ height: `${((count - lost) / most) * 100}%` }} />
          </div>
        );
      })}
    </div>
  );
}
