import { useEffect } from 'react';
import { Logo } from '~/shell/Logo';
import styles from './Frame.module.css';

export function Frame({ title, lead, children }: { title: string; lead?: React.ReactNode; children: React.ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Sluice`;
  }, [title]);
  return (
    <main className={styles.frame}>
      <div className={styles.box}>
        <Logo />
        <h1>{title}</h1>
        {lead && <p className="soft">{lead}</p>}
        {children}
      </div>
    </main>
  );
}
