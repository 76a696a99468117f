import { Outcome } from './Outcome';

/** Marks an account whose address nobody has proven; renders nothing for others. */
export function Unproven({ account: { proven } }: { account: { proven: boolean } }) {
  if (proven) return null;
  return (
    <span title="The link of the invitation was passed on by the inviter, so the address is only a claim.">
      <Outcome tone="degraded">Unproven address</Outcome>
    </span>
  );
}
