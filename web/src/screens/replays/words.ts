import { exactNumber, exactTime, percent, plural, shortNumber } from '~/domain/format';
import type { Figure, Replay, ReplayResult } from '~/features/replay/queries';

export const stateWords: Record<Replay['state'], string> = {
  waiting: 'Waiting',
  running: 'Running',
  done: 'Done',
  failed: 'Failed',
  canceled: 'Canceled',
};

export function counted({ value, error }: Figure): string {
  return error > 0 ? `${exactNumber(Math.round(value))} ± ${exactNumber(Math.ceil(error))}` : exactNumber(value);
}

export function signed(sign: '+' | '−', text: string): string {
  return text === '0' ? text : sign + text;
}

const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];

export function size(bytes: number): string {
  const unit = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10));
  return `${shortNumber(Math.round((10 * bytes) / 1024 ** unit) / 10)} ${units[unit]}`;
}

export function sampleWords({ sample, seed }: Replay, share: number): string | null {
  if (share >= 1) return null;
  const drawn = sample > 0 ? ` Seed ${seed}: the same seed gives the same result.` : '';
  return `From a sample of ${percent(share)} of users and addresses; ± is 95 % confidence.${drawn}`;
}

export function sinceWords({ recorded_since, rules_known_since }: ReplayResult): string[] {
  const words = [];
  if (recorded_since) {
    words.push(`Checks are recorded since ${exactTime(Date.parse(recorded_since))}; what came before is missing.`);
  }
  if (rules_known_since) {
    const at = exactTime(Date.parse(rules_known_since));
    words.push(`The audit log knows the rules since ${at}; before, the rules of that time stand for them.`);
  }
  return words;
}

export function agreement(agreeing: number, read: number): string {
  return (
    `Without the change, the replay decides ${percent(read > 0 ? agreeing / read : 1)} of ` +
    `${plural(read, 'recorded check')} as they were decided then.`
  );
}
