import styles from './Facts.module.css';

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
