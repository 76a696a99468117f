/* A browser's clock can be wrong by hours, and the server's decides when a rule, an override or a key ends. */

/** The server's clock minus the browser's, in milliseconds. */
let ahead = 0;

export function serverNow(): number {
  return Date.now() + ahead;
}

/** The Date header was written between the two times, and leaves out the milliseconds. */
export function noteServerTime(date: string | null, sent: number, received: number): void {
  const written = Date.parse(date ?? '');
  if (Number.isNaN(written)) return;
  ahead = Math.min(Math.max(ahead, written - received), written + 1000 - sent);
}
