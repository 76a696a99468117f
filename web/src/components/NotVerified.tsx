import { Outcome } from './Outcome';

export function NotVerified({ account: { proven } }: { account: { proven: boolean } }) {
  if (proven) return null;
  return (
    <span title="Joined by a link that was passed on, so nobody has verified that the address is theirs.">
      <Outcome tone="degraded">Not verified</Outcome>
    </span>
  );
}
