import type { Account } from '~/api/types';

export interface AccountChange {
  account: Account;
  /** Left out, the account's sessions are ended. */
  patch?: { platform_admin?: boolean; disabled?: boolean; proven?: boolean };
  verb: string;
  title: string;
  effect: string;
  done: string;
  destructive?: boolean;
}

export function changes(account: Account): Record<'admin' | 'access' | 'proof' | 'sessions', AccountChange> {
  const who = account.name || account.email;
  return {
    admin: account.platform_admin
      ? {
          account,
          patch: { platform_admin: false },
          verb: 'Revoke platform admin',
          title: `Revoke platform admin from ${who}?`,
          effect: 'They keep access only to the tenants where they are a member.',
          done: `${who} is no longer a platform admin`,
          destructive: true,
        }
      : {
          account,
          patch: { platform_admin: true },
          verb: 'Make platform admin',
          title: `Make ${who} a platform admin?`,
          effect: 'They can change every tenant and every account of this installation.',
          done: `${who} is a platform admin now`,
        },
    proof: {
      account,
      patch: { proven: true },
      verb: 'Verify the address',
      title: `Does ${account.email} belong to ${who}?`,
      effect: 'You vouch that the address belongs to this person. Ask them in another way first.',
      done: `The address of ${who} is verified now`,
    },
    sessions: {
      account,
      verb: 'Sign out everywhere',
      title: `Sign ${who} out everywhere?`,
      effect: 'All their sessions end at once, such as on a lost device. They can sign in again.',
      done: `${who} is signed out everywhere`,
      destructive: true,
    },
    access: account.disabled
      ? {
          account,
          patch: { disabled: false },
          verb: 'Enable',
          title: `Enable ${who}?`,
          effect: 'They can sign in again, with the password and the roles they had.',
          done: `${who} can sign in again`,
        }
      : {
          account,
          patch: { disabled: true },
          verb: 'Disable',
          title: `Disable ${who}?`,
          effect: 'All their sessions end at once, and they cannot sign in. Their past changes stay.',
          done: `${who} is disabled`,
          destructive: true,
        },
  };
}
