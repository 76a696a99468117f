import { Button, TextInput } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, etagOf } from '~/api/client';
import { isStatus } from '~/api/problem';
import { sessionKey, signInOptionsQuery } from '~/api/queries';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { Card } from '~/components/Page';
import { SignInAddress } from '~/components/SignInAddress';
import { done, failed } from '~/components/toast';
import { useSession } from '~/session';
import styles from './Profile.module.css';

export function NameCard() {
  const { account, memberships } = useSession();
  const queries = useQueryClient();
  const [name, setName] = useState(account.name);
  const home = memberships[0]?.tenant.slug;
  const save = useMutation({
    mutationFn: () => api.patch('/api/v1/account', { etag: etagOf(account), body: { name } }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: sessionKey });
      done('Name saved');
    },
    // Changed elsewhere: after a refetch the next save succeeds.
    onError: (error) => isStatus(error, 412) && queries.invalidateQueries({ queryKey: sessionKey }),
  });
  const options = useQuery(signInOptionsQuery);
  const prove = useMutation({
    mutationFn: () => api.post('/api/v1/account/proof'),
    onSuccess: () => done(`A link is on its way to ${account.email}`),
    onError: (error) => failed('Could not send the link', error),
  });
  const { wrong, rest } = fieldErrors(save.error);
  return (
    <Card title="Account" lead={account.email}>
      <form className={styles.form} onSubmit={submits(() => save.mutate())}>
        {!account.proven && home && (
          <p>
            Your sign-in address is
            <SignInAddress tenant={home} />
            You joined by a link that did not come by mail, so this account can join no other tenant.
          </p>
        )}
        {!account.proven && options.data?.mail && (
          <div>
            <Button variant="default" loading={prove.isPending} onClick={() => prove.mutate()}>
              Verify my e-mail address
            </Button>
          </div>
        )}
        <TextInput
          label="Name"
          description="Shown in the audit log and in the list of members"
          autoComplete="name"
          maxLength={100}
          value={name}
          error={wrong('/name')}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <FormError>{rest()}</FormError>
        <div>
          <Button type="submit" variant="default" disabled={name === account.name} loading={save.isPending}>
            Save name
          </Button>
        </div>
      </form>
    </Card>
  );
}
