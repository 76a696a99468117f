import styles from './Facts.module.css';

/** A list of names and values. Entries that are null, undefined or false are left out. */
export function Facts({ facts }: { facts: Record<string, React.ReactNode> }) {
  return (
    <dl className={styles.facts}>
      {Object.entries(facts)
        .filter(([, value]) => value !== null && value !== undefined && value !== false)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
