/** A timer later than this part of the time-out shows that the event loop had no time for answers. */
const late = 1 / 8;
/** The event loop reads answers in so many pauses of so many milliseconds. */
const pause = 2;
const pauses = 2;
/** Time-outs that a check waits at most. */
export const longest = 10;

/**
 * Calls back when the event loop has had time to read answers: after a stall, timers come first. due is when the wait
 * should have ended. Returns a function that cancels.
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
  // After a stall the time begins anew, because the request may not even have been sent.
  const next = (afterLate: boolean) => wait(afterLate ? timeout : Math.min(pause, late * timeout));
  next(isLate(due));
  return () => clearTimeout(timer);
}

export function whenOver(timeout: number, over: () => void): () => void {
  const due = performance.now() + timeout;
  const timer = setTimeout(() => {
    cancel = whenCalm(due, timeout, over);
  }, timeout);
  let cancel = () => clearTimeout(timer);
  return () => cancel();
}
