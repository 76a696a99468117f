import { signInAddress } from '~/session';
import { Copy } from './Copy';
import styles from './SignInAddress.module.css';

/** The address to keep for somebody who joined a tenant by a link, on a line of its own. */
export function SignInAddress({ tenant }: { tenant: string }) {
  const address = signInAddress(tenant);
  return (
    <span className={styles.line}>
      <strong>{address}</strong>
      <Copy value={address} label="Copy sign-in address" />
    </span>
  );
}
