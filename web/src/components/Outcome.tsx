import { IconAlert, IconBan, IconCheck, IconGhost } from './icons';
import styles from './Outcome.module.css';

/** Each has a shape, so that colour is never the only sign. */
export type Tone = 'allowed' | 'denied' | 'shadow' | 'degraded' | 'neutral';

const shapes = { allowed: IconCheck, denied: IconBan, shadow: IconGhost, degraded: IconAlert, neutral: null };

export function Outcome({ tone, children }: { tone: Tone; children: React.ReactNode }) {
  const Shape = shapes[tone];
  return (
    <span className={styles.chip} data-tone={tone}>
      {Shape && <Shape size={13} stroke={2} aria-hidden />}
      {children}
    </span>
  );
}
