import styles from './Rules.module.css';
import type { FieldChange } from './ruleDraft';

export function ChangeList({ of, lead }: { of: FieldChange[]; lead?: string }) {
  return (
    <div className={styles.changes}>
      {lead && <span>{lead}</span>}
      {of.map(({ label, from, to }) => (
        <span key={label}>
          {label}: <s>{from}</s> <strong>{to}</strong>
        </span>
      ))}
    </div>
  );
}
