import styles from './Facts.module.css';

/** Names and values, one a line: what is known of one thing. Values that are null are left out. */
export function Facts({ facts }: { facts: [name: string, value: React.ReactNode][] }) {
  return (
    <dl className={styles.facts}>
      {facts
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
