import { signInAddress } from '~/session';
import { Copy } from './Copy';
import styles from './SignInAddress.module.css';

export function SignInAddress({ tenant }: { tenant: string }) {
  const address = signInAddress(tenant);
  return (
    <span className={styles.line}>
      <strong>{address}</strong>
      <Copy value={address} label="Copy sign-in address" />
    </span>
  );
}
