import { Button } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { api } from '~/api/client';
import type { ProviderName } from '~/api/types';
import { FormError, fieldErrors } from '~/components/FormDialog';
import styles from './Frame.module.css';

interface Props {
  providers: ProviderName[];
  next: string;
  onStart: () => void;
}

export function Providers({ providers, next, onStart }: Props) {
  const start = useMutation({
    mutationFn: (provider: string) => api.post('/api/v1/auth/{provider}/start', { provider, body: { next } }),
    onSuccess: ({ url }) => {
      onStart();
      window.location.assign(url);
    },
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
