import type { Explanation } from '~/api/types';
import { Announce } from '~/components/Announce';
import { IconBan, IconCheck } from '~/components/icons';
import { Num } from '~/components/Num';
import { Outcome } from '~/components/Outcome';
import { Duration } from '~/components/Time';
import { deniedBy, describedMeter, planSources, statusOf, verdict } from '~/domain/check';
import { meterUnit } from '~/domain/meter';
import styles from './Explain.module.css';

export function Verdict({ explanation }: { explanation: Explanation }) {
  const { decision, plan_source } = explanation;
  const status = statusOf(explanation);
  const unit = meterUnit(describedMeter(explanation));
  const { allowed, remaining, limit, retry_after_ms, reset_after_ms, plan, degraded } = decision;
  const Shape = allowed ? IconCheck : IconBan;
  return (
    <section className={styles.verdict} data-tone={allowed ? 'allowed' : 'denied'} aria-label="Decision">
      {/* Its numbers change every two seconds: only another verdict is worth hearing. */}
      <Announce>{allowed ? 'Allowed' : `Denied by ${deniedBy(explanation)}`}</Announce>
      <div className={styles.said}>
        <h2>
          <Shape size={16} stroke={2.25} aria-hidden />
          {allowed ? 'Allowed' : 'Denied'}
        </h2>
        <code className="soft">
          {status.code} {status.text}
        </code>
        {degraded && <Outcome tone="degraded">Degraded</Outcome>}
      </div>
      <p>{verdict(explanation)}</p>
      <dl className={styles.numbers}>
        <Fact name="Plan">
          {plan ?? 'none'}
          {plan_source && <span className="soft"> · {planSources[plan_source]}</span>}
        </Fact>
        {limit !== null && (
          <Fact name={unit ? 'Left' : 'Tokens left'}>
            <Num value={remaining ?? 0} /> of <Num value={limit} unit={unit} />
          </Fact>
        )}
        {!allowed && (
          <Fact name="Wait">
            {retry_after_ms === null ? 'Waiting does not help' : <Duration ms={retry_after_ms} />}
          </Fact>
        )}
        {reset_after_ms !== null && (
          <Fact name="Full">
            {reset_after_ms === 0 ? (
              'now'
            ) : (
              <>
                in <Duration ms={reset_after_ms} />
              </>
            )}
          </Fact>
        )}
      </dl>
    </section>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
