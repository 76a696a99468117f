import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { isStatus, ProblemError } from '~/api/problem';
import type { Session } from '~/api/types';
import { CodeInput } from '~/components/CodeInput';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import styles from './Frame.module.css';

interface Props {
  onSignedIn: (session: Session) => void;
  /** Back to the password: the second step took too long, or too many codes. */
  onOver: (message?: string) => void;
}

/** A cookie says who signs in. */
export function SecondStep({ onSignedIn, onOver }: Props) {
  const [code, setCode] = useState('');
  const finish = useMutation({
    mutationFn: () => api.post('/api/v1/session/second-factor', { body: { code } }),
    onSuccess: onSignedIn,
    onError: (error) => {
      setCode('');
      if (isStatus(error, 401)) onOver('That took too long, or too many codes were wrong. Sign in again.');
    },
  });
  const { wrong, rest } = fieldErrors(finish.error);
  const field = wrong('/code');
  const tooSoon = isStatus(finish.error, 429) && finish.error instanceof ProblemError && finish.error.retryAfter;
  return (
    <form className={styles.form} onSubmit={submits(() => finish.mutate())}>
      <CodeInput value={code} onChange={setCode} error={field} autoFocus />
      <FormError>{tooSoon ? `Too many codes. Try again in ${tooSoon} s.` : rest()}</FormError>
      <Button type="submit" fullWidth loading={finish.isPending}>
        Sign in
      </Button>
      <Button variant="default" fullWidth onClick={() => onOver()}>
        Back
      </Button>
    </form>
  );
}
