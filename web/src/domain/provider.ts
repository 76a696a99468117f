const reasons: Record<string, string> = {
  unavailable: 'did not answer. Try again, or sign in another way.',
  denied: 'did not sign you in.',
  wrong_answer: 'gave an answer that cannot be trusted. Try again; a platform admin can see why.',
  expired: 'took too long, or this page was used before. Try again.',
  email_unverified: 'has not verified your e-mail address. Verify it there, and try again.',
  email_domain: 'knows you by an e-mail address of a domain that may not sign in here.',
  claim: 'does not say that you may use Sluice. Ask whoever manages it.',
  no_account: 'signed you in, but you have no account here. Ask for an invitation.',
  account_exists:
    'signed you in, but your address has an account here. Sign in to it, then link the two on your profile.',
  account_disabled: 'signed you in, but your account here is disabled. Ask a platform admin.',
  identity_taken: 'signed you in, but that identity is linked with an account already.',
  other_account: 'signed in somebody else than the person whose account this is.',
  no_auth_time:
    'does not tell when you signed in there, so nothing is proven. Ask a platform admin to change its settings.',
  not_asked_again: 'did not ask you to sign in again, so nothing is proven. Sign out there, and try again.',
  session_changed: 'signed you in, but another session is open in this browser now. Try again.',
};

export function whyNot(failed: string, name: string): string {
  return reasons[failed] ? `${name} ${reasons[failed]}` : 'Sluice could not finish the sign-in. Try again.';
}
