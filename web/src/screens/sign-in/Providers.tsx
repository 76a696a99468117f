import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { api, body } from '~/api/client';
import type { ProviderName } from '~/api/types';
import { FormError, fieldErrors } from '~/components/FormDialog';
import styles from './Frame.module.css';

/** A button for each provider, which leads there and from there to the path. */
export function Providers({ providers, next }: { providers: ProviderName[]; next: string }) {
  const start = useMutation({
    mutationFn: (provider: string) =>
      body(api.POST('/api/v1/auth/{provider}/start', { params: { path: { provider } }, body: { next } })),
    onSuccess: ({ url }) => window.location.assign(url),
  });
  return (
    <div className={styles.providers}>
      {providers.map(({ slug, name }) => (
        <Button
          key={slug}
          variant="default"
          fullWidth
          loading={start.variables === slug && (start.isPending || start.isSuccess)}
          onClick={() => start.mutate(slug)}
        >
          Sign in with {name}
        </Button>
      ))}
      <FormError>{fieldErrors(start.error).rest()}</FormError>
    </div>
  );
}

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
    'signed you in, and an account with your e-mail address exists here. Sign in to it, then link the two on your profile.',
  account_disabled: 'signed you in, but your account here is disabled. Ask a platform admin.',
  identity_taken: 'signed you in, but that identity is linked with an account already.',
  session_changed: 'signed you in, but another session is open in this browser now. Try again.',
};

/** Why a sign-in at a provider did not succeed, in words. */
export function whyNot(failed: string, name: string): string {
  return reasons[failed] ? `${name} ${reasons[failed]}` : 'Sluice could not finish the sign-in. Try again.';
}
