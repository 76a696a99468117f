import styles from './CodeBlock.module.css';
import { Copy } from './Copy';

export function CodeBlock({ code, label }: { code: string; label: string }) {
  return (
    <div className={styles.block}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard */}
      <section tabIndex={0} aria-label={label}>
        <pre>{code}</pre>
      </section>
      <span className={styles.copy}>
        <Copy value={code} label={`Copy ${label}`} />
      </span>
    </div>
  );
}
