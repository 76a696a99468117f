import type { ConfigChange, ConfigDiff } from '~/api/types';
import { plural } from '~/domain/format';
import styles from './Config.module.css';

export function changesIn({ plans, rules, overrides, gateways }: ConfigDiff): number {
  return plans.length + rules.length + overrides.length + gateways.length;
}

export function ConfigDiffView({ diff }: { diff: ConfigDiff }) {
  const count = changesIn(diff);
  if (count === 0) {
    return <p className="soft">No changes. Everything already matches the file.</p>;
  }
  return (
    <section className={styles.diff} aria-label="Changes">
      <h3>{plural(count, 'change')}</h3>
      <Group name="Plans" changes={diff.plans} />
      <Group name="Rules" changes={diff.rules} />
      <Group name="Overrides" changes={diff.overrides} />
      <Group name="Gateways" changes={diff.gateways} />
    </section>
  );
}

const marks = { create: '+', update: '~', remove: '−' } as const;
const words = { create: 'new', update: 'changed', remove: 'removed' } as const;

function Group({ name, changes }: { name: string; changes: ConfigChange[] }) {
  if (changes.length === 0) return null;
  return (
    <div>
      <h4 className={styles.group}>{name}</h4>
      <ul className={styles.changes}>
        {changes.map(({ change, label, fields }) => (
          <li key={label} data-change={change}>
            <span className={styles.mark} aria-hidden>
              {marks[change]}
            </span>
            <div>
              <code>{label}</code> <span className="soft">{words[change]}</span>
              {fields.map(({ field, before, after }) => (
                <div key={field} className={styles.field}>
                  <span className="soft">{field}</span> {before !== undefined && <del>{before}</del>}
                  {before !== undefined && after !== undefined && ' → '}
                  {after !== undefined && <ins>{after}</ins>}
                </div>
              ))}
            </div>
          </li>
        ))}
      </ul>
    </div>
  );
}
