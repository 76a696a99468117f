import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { api } from '~/api/client';
import type { IdentityProvider, ProviderFailure } from '~/api/types';
import { Copy } from '~/components/Copy';
import { Facts } from '~/components/Facts';
import { Outcome } from '~/components/Outcome';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { RelativeTime } from '~/components/Time';
import styles from './Platform.module.css';

export default function SignIn() {
  const providers = useQuery({
    queryKey: ['identity-providers'],
    queryFn: async ({ signal }) => (await api.get('/api/v1/identity-providers', { signal })).items,
  });
  return (
    <Page
      title="Sign-in"
      actions={
        <Button variant="default" loading={providers.isFetching} onClick={() => providers.refetch()}>
          Check again
        </Button>
      }
    >
      <Query query={providers}>
        {(items) =>
          items.length === 0 ? (
            <Card>
              <EmptyState title="No providers">Set SLUICE_OIDC_FILE to sign in with OpenID Connect.</EmptyState>
            </Card>
          ) : (
            items.map((provider) => <ProviderCard key={provider.slug} provider={provider} />)
          )
        }
      </Query>
    </Page>
  );
}

function ProviderCard({ provider }: { provider: IdentityProvider }) {
  const { name, issuer, redirect_url, problem, checked_at, failures } = provider;
  return (
    <Card title={name} lead={issuer}>
      <Facts
        facts={{
          State: problem ? (
            <>
              <Outcome tone="denied">Does not answer</Outcome> {problem}
            </>
          ) : (
            <Outcome tone="allowed">Answers</Outcome>
          ),
          Checked: checked_at && <RelativeTime at={checked_at} />,
          'Redirect address': (
            <>
              <code>{redirect_url}</code> <Copy value={redirect_url} label="Copy the redirect address" />
            </>
          ),
          'Who may sign in': whoMay(provider),
          'First sign-in': provider.creates_accounts ? 'makes an account' : 'needs a linked account',
          Groups: provider.gives_roles && 'give roles, and take them back',
          'Second factor': provider.second_factor && secondFactor(provider),
          'Signing out': provider.sign_out && 'signs out there too',
        }}
      />
      <h3 className={styles.below}>Sign-ins that failed</h3>
      {failures.length === 0 ? (
        <p className="soft">None since the process started.</p>
      ) : (
        <ul className={styles.failures} aria-label={`Sign-ins that failed at ${name}`}>
          {failures.map((failure) => (
            <Failure key={`${failure.reason} ${failure.detail}`} failure={failure} />
          ))}
        </ul>
      )}
    </Card>
  );
}

function whoMay({ email_domains, required_claim }: IdentityProvider): string {
  const who = email_domains.length > 0 ? `verified addresses of ${email_domains.join(', ')}` : 'any address';
  return required_claim ? `${who}, with the claim ${required_claim}` : who;
}

function secondFactor({ second_factor_claim }: IdentityProvider): string {
  return second_factor_claim
    ? `a sign-in there with ${second_factor_claim} counts as two factors`
    : 'a sign-in there counts as two factors';
}

function Failure({ failure: { detail, count, at } }: { failure: ProviderFailure }) {
  return (
    <li>
      <div>{detail}</div>
      <div className="soft">
        {count > 1 && `${count} times, last `}
        <RelativeTime at={at} />
      </div>
    </li>
  );
}
