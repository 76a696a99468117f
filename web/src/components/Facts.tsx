import styles from './Facts.module.css';

/** Names and values, one a line: what is known of one thing. What is null or false is left out. */
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
