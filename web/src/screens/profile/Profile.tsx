import { Page } from '~/components/Page';
import { FactorCard } from './FactorCard';
import { LinkedCard } from './LinkedCard';
import { NameCard } from './NameCard';
import { PasswordCard } from './PasswordCard';
import styles from './Profile.module.css';
import { SecurityCard } from './SecurityCard';
import { SessionsCard } from './SessionsCard';

export default function Profile() {
  return (
    <Page title="Profile">
      <div className={styles.cards}>
        <NameCard />
        <PasswordCard />
        <FactorCard />
        <LinkedCard />
        <SessionsCard />
        <SecurityCard />
      </div>
    </Page>
  );
}
