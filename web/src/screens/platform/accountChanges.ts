import type { Account } from '~/api/types';

/** A change of an account, in the words that ask for it. */
export interface AccountChange {
  account: Account;
  patch: { platform_admin?: boolean; disabled?: boolean };
  verb: string;
  title: string;
  effect: string;
  done: string;
  destructive: boolean;
}

/** The two things that can be changed about an account, each from what it is to the other. */
export function changes(account: Account): { admin: AccountChange; access: AccountChange } {
  const who = account.name || account.email;
  return {
    admin: account.platform_admin
      ? {
          account,
          patch: { platform_admin: false },
          verb: 'Take platform rights',
          title: `Take platform rights from ${who}?`,
          effect: 'They keep the tenants that they are a member of, and see no others.',
          done: `${who} is no platform admin any more`,
          destructive: true,
        }
      : {
          account,
          patch: { platform_admin: true },
          verb: 'Make platform admin',
          title: `Make ${who} a platform admin?`,
          effect: 'They can change every tenant and every account of this installation.',
          done: `${who} is a platform admin now`,
          destructive: false,
        },
    access: account.disabled
      ? {
          account,
          patch: { disabled: false },
          verb: 'Enable',
          title: `Enable ${who}?`,
          effect: 'They can sign in again, with the password and the roles they had.',
          done: `${who} can sign in again`,
          destructive: false,
        }
      : {
          account,
          patch: { disabled: true },
          verb: 'Disable',
          title: `Disable ${who}?`,
          effect: 'All their sessions end at once, and they cannot sign in. What they changed stays.',
          done: `${who} is disabled`,
          destructive: true,
        },
  };
}
