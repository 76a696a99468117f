import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { Link, useLocation } from '@tanstack/react-router';
import { useState } from 'react';
import { api } from '~/api/client';
import { isStatus } from '~/api/problem';
import { FormError, fieldErrors } from '~/components/FormDialog';
import { Frame } from './Frame';
import styles from './Frame.module.css';
import { SecondStep } from './SecondStep';
import { useSignedIn } from './signedIn';

/** The screen of a link that `admin sign-in-link` made. */
export default function SignInLink() {
  const token = useLocation({ select: ({ hash }) => hash });
  const signedIn = useSignedIn('/');
  const [needsCode, setNeedsCode] = useState(false);
  const use = useMutation({
    mutationFn: () => api.post('/api/v1/session/link', { body: { token } }),
    onSuccess: (answer) => ('account' in answer ? signedIn(answer) : setNeedsCode(true)),
  });
  if (token === '' || isStatus(use.error, 404)) {
    return (
      <Frame title="This link is no longer valid" lead="It was used, or is older than 15 minutes.">
        <p>
          <Link to="/sign-in">Sign in</Link>
        </p>
      </Frame>
    );
  }
  if (needsCode) {
    return (
      <Frame title="Sign in">
        <SecondStep onSignedIn={signedIn} onOver={() => setNeedsCode(false)} />
      </Frame>
    );
  }
  return (
    <Frame title="Sign in">
      <div className={styles.form}>
        <FormError>{fieldErrors(use.error).rest()}</FormError>
        <Button fullWidth loading={use.isPending} onClick={() => use.mutate()}>
          Sign in
        </Button>
      </div>
    </Frame>
  );
}
