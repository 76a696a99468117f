import { useEffect } from 'react';
import styles from './Page.module.css';

interface Props {
  title: string;
  beside?: React.ReactNode;
  lead?: React.ReactNode;
  above?: React.ReactNode;
  actions?: React.ReactNode;
  children: React.ReactNode;
}

export function Page({ title, beside, lead, above, actions, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Sluice`;
  }, [title]);
  return (
    <div className={`${styles.page} in-order`}>
      {above && <div className={styles.above}>{above}</div>}
      <header className={styles.header}>
        <div className={styles.heading}>
          <div className={styles.title}>
            <h1>{title}</h1>
            {beside}
          </div>
          {lead && <p className={styles.lead}>{lead}</p>}
        </div>
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      {children}
    </div>
  );
}

interface CardProps {
  title?: React.ReactNode;
  lead?: React.ReactNode;
  actions?: React.ReactNode;
  flush?: boolean;
  children: React.ReactNode;
}

export function Card({ title, lead, actions, flush, children }: CardProps) {
  return (
    <section className={styles.card}>
      {title && (
        <header className={styles.cardHeader}>
          <div>
            <h2>{title}</h2>
            {lead && <p className={styles.cardLead}>{lead}</p>}
          </div>
          {actions && <div className={styles.actions}>{actions}</div>}
        </header>
      )}
      <div className={flush ? undefined : styles.cardBody}>{children}</div>
    </section>
  );
}
