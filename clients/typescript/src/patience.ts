/** A timer of more than this part of the time-out came late: the event loop had no time for it, or for an answer. */
const late = 1 / 8;
/** How many milliseconds a timer is put off until the event loop has read what has come, and how often in a row. */
const pause = 2;
const pauses = 2;
/** How many time-outs a check waits at most. */
export const longest = 10;

/**
 * Calls back when the event loop has had time to read answers: after a stall, timers come before the answers that have
 * long arrived. due is when the wait should have ended. It returns how to cancel that.
 */
export function whenCalm(due: number, timeout: number, over: () => void): () => void {
  const isLate = (at: number) => performance.now() - at > late * timeout;
  let timer: ReturnType<typeof setTimeout>;
  let inTime = 0;
  let lates = 0;
  const wait = (milliseconds: number) => {
    const wake = performance.now() + milliseconds;
    timer = setTimeout(() => {
      inTime = isLate(wake) ? 0 : inTime + 1;
      if (inTime === 0) lates++;
      if (inTime >= pauses || lates >= longest) over();
      else next(inTime === 0);
    }, milliseconds);
  };
  // After a stall the time begins anew, since the request may not even have been sent.
  const next = (afterLate: boolean) => wait(afterLate ? timeout : Math.min(pause, late * timeout));
  next(isLate(due));
  return () => clearTimeout(timer);
}

/** whenCalm after a time-out. */
export function whenOver(timeout: number, over: () => void): () => void {
  const due = performance.now() + timeout;
  const timer = setTimeout(() => {
    cancel = whenCalm(due, timeout, over);
  }, timeout);
  let cancel = () => clearTimeout(timer);
  return () => cancel();
}
