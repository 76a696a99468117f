import { Page } from '~/components/Page';
import { NameCard } from './NameCard';
import { PasswordCard } from './PasswordCard';
import styles from './Profile.module.css';
import { SessionsCard } from './SessionsCard';

/** The reader’s account: name, password and sessions. */
export default function Profile() {
  return (
    <Page title="Profile">
      <div className={styles.cards}>
        <NameCard />
        <PasswordCard />
        <SessionsCard />
      </div>
    </Page>
  );
}
