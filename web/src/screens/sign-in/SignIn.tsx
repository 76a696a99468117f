import { Button, PasswordInput, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQuery } from '@tanstack/react-query';
import { Link, useParams, useRouter, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { api, body } from '~/api/client';
import { isStatus, ProblemError, sentence } from '~/api/problem';
import { signInOptionsQuery } from '~/api/queries';
import { whyNot } from '~/domain/provider';
import { Frame } from './Frame';
import styles from './Frame.module.css';
import { Providers } from './Providers';
import { SecondStep } from './SecondStep';
import { useSignedIn } from './signedIn';

export default function SignIn() {
  const form = useForm({ initialValues: { email: '', password: '' } });
  const { next, failed, provider, step } = useSearch({ strict: false }) as Record<string, string | undefined>;
  const { slug } = useParams({ strict: false }) as { slug?: string };
  const options = useQuery(signInOptionsQuery);
  const router = useRouter();
  const { providers = [], passwords: takesPasswords = true } = options.data ?? {};
  useEffect(() => {
    document.title = 'Sign in · Sluice';
  }, []);

  const [needsCode, setNeedsCode] = useState(step === 'code');
  const [over, setOver] = useState<string>();
  // The fragment keeps an invitation’s token.
  const { hash } = router.state.location;
  const goal = `${next ?? '/'}${hash && `#${hash}`}`;
  const signedIn = useSignedIn(goal);
  const signIn = useMutation({
    mutationFn: () => body(api.POST('/api/v1/session', { body: { ...form.values, tenant: slug } })),
    onMutate: () => setOver(undefined),
    onSuccess: (answer) => {
      if ('account' in answer) return signedIn(answer);
      setNeedsCode(true);
      form.setFieldValue('password', '');
    },
    onError: () => form.setFieldValue('password', ''),
  });

  if (needsCode)
    return (
      <Frame title="Second step" lead={form.values.email}>
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
    <Frame
      title={slug ? `Sign in to ${slug}` : 'Sign in'}
      lead={slug ? 'For members who have not proven their address.' : 'Rate limits, plans and violations.'}
    >
      {failed && (
        <p role="alert" className={styles.error}>
          {whyNot(failed, providers.find(({ slug }) => slug === provider)?.name ?? 'The provider')}
        </p>
      )}
      {!slug && providers.length > 0 && <Providers providers={providers} next={goal} />}
      {!takesPasswords && slug && (
        <p>
          Signing in by password is off here. <Link to="/sign-in">Sign in with a provider</Link>.
        </p>
      )}
      {takesPasswords && (
        <form className={styles.form} onSubmit={form.onSubmit(() => signIn.mutate())}>
          <TextInput
            label="E-mail"
            type="email"
            name="email"
            autoComplete="username"
            autoFocus
            required
            withAsterisk={false}
            {...form.getInputProps('email')}
          />
          <PasswordInput
            label="Password"
            name="password"
            autoComplete="current-password"
            required
            withAsterisk={false}
            {...form.getInputProps('password')}
          />
          {(signIn.isError || over) && (
            <p role="alert" className={styles.error}>
              {over ?? message(signIn.error)}
            </p>
          )}
          <Button type="submit" fullWidth loading={signIn.isPending}>
            Sign in
          </Button>
          {options.data?.mail && !slug && (
            <p>
              <Link to="/forgot-password">Forgot your password?</Link>
            </p>
          )}
          {slug && (
            <p className="soft">
              Have you proven your address? <Link to="/sign-in">Sign in here</Link>.
            </p>
          )}
        </form>
      )}
    </Frame>
  );
}

function message(error: unknown): string {
  if (isStatus(error, 401)) return 'The e-mail address or the password is wrong.';
  if (isStatus(error, 429) && error instanceof ProblemError && error.retryAfter) {
    return `Too many attempts. Try again in ${error.retryAfter} s.`;
  }
  return sentence(error);
}
