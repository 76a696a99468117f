import styles from './CodeBlock.module.css';
import { Copy } from './Copy';

/** Code to copy: as it is, never wrapped into something that no longer runs. */
export function CodeBlock({ code, label }: { code: string; label: string }) {
  return (
    <div className={styles.block}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard */}
      <pre tabIndex={0} role="group" aria-label={label}>
        {code}
      </pre>
      <span className={styles.copy}>
        <Copy value={code} label={`Copy ${label}`} />
      </span>
    </div>
  );
}
