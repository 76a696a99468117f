import { Button, PasswordInput, TextInput } from '@mantine/core';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useParams, useRouter, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import { signInOptionsQuery } from '~/api/queries';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { useFields } from '~/components/useFields';
import { whyNot } from '~/domain/provider';
import { rememberTenant } from '~/session';
import { Frame } from './Frame';
import styles from './Frame.module.css';
import { Providers } from './Providers';
import { SecondStep } from './SecondStep';
import { useSignedIn } from './signedIn';

export default function SignIn() {
  const { slug = '' } = useParams({ strict: false }) as { slug?: string };
  const { values, field, change } = useFields({ email: '', password: '', tenant: slug });
  const { next, failed, provider, step } = useSearch({ strict: false }) as Record<string, string | undefined>;
  const options = useQuery(signInOptionsQuery);
  const router = useRouter();
  const { providers = [], passwords: takesPasswords = true } = options.data ?? {};
  const [choosesTenant, setChoosesTenant] = useState(false);
  const [needsCode, setNeedsCode] = useState(step === 'code');
  const [over, setOver] = useState<string>();
  const tenant = slugIn(values.tenant);
  // The fragment keeps an invitation’s token.
  const { hash } = router.state.location;
  const isForAnother = tenant !== slug && next?.startsWith(`/t/${slug}/`);
  const goal = isForAnother ? '/' : `${next ?? '/'}${hash && `#${hash}`}`;
  const signedIn = useSignedIn(goal, tenant);
  const signIn = useMutation({
    mutationFn: () => {
      const { email, password } = values;
      return api.post('/api/v1/session', { body: { email, password, ...(tenant && { tenant }) } });
    },
    onMutate: () => setOver(undefined),
    onSuccess: (answer) => {
      if ('account' in answer) return signedIn(answer);
      setNeedsCode(true);
      change({ password: '' });
    },
    onError: () => change({ password: '' }),
  });
  const { wrong, rest } = fieldErrors(signIn.error);

  if (needsCode)
    return (
      <Frame title="Second step" lead={values.email}>
        <SecondStep
          onSignedIn={signedIn}
          onOver={(message) => {
            setOver(message);
            setNeedsCode(false);
          }}
        />
      </Frame>
    );
  return (
    <Frame title={slug ? `Sign in to ${slug}` : 'Sign in'}>
      {failed && (
        <p role="alert" className={styles.error}>
          {whyNot(failed, providers.find(({ slug }) => slug === provider)?.name ?? 'The provider')}
        </p>
      )}
      {providers.length > 0 && (
        <Providers
          providers={providers}
          next={goal}
          onStart={() => slug && rememberTenant(slug)} // a provider sends people back to /sign-in
        />
      )}
      {takesPasswords && (
        <form className={styles.form} onSubmit={submits(() => signIn.mutate())}>
          <TextInput
            label="E-mail"
            type="email"
            name="email"
            autoComplete="username"
            autoFocus
            required
            {...field('email')}
          />
          <PasswordInput
            label="Password"
            name="password"
            autoComplete="current-password"
            required
            {...field('password')}
          />
          {choosesTenant ? (
            <TextInput
              label="Tenant"
              description="What comes after /sign-in/ in your sign-in address. Ask whoever invited you."
              name="tenant"
              autoComplete="organization"
              autoCapitalize="none"
              autoFocus
              {...field('tenant', wrong)}
            />
          ) : (
            <p>
              <button type="button" className="link-button" onClick={() => setChoosesTenant(true)}>
                {slug ? 'Another tenant' : 'I joined by a link'}
              </button>
            </p>
          )}
          <FormError>{over ?? rest()}</FormError>
          <Button type="submit" fullWidth loading={signIn.isPending}>
            Sign in
          </Button>
          {options.data?.mail && (
            <p>
              <Link to="/forgot-password" search={{ tenant: tenant || undefined }}>
                Forgot your password?
              </Link>
            </p>
          )}
        </form>
      )}
    </Frame>
  );
}

function slugIn(text: string): string {
  const [, slug = ''] = /^(?:.*\/sign-in\/)?([^/?#]*)/.exec(text.trim().toLowerCase()) ?? [];
  return slug;
}
