import { useQuery } from '@tanstack/react-query';
import { useRouter, useSearch } from '@tanstack/react-router';
import { useEffect } from 'react';
import { signInOptionsQuery } from '~/api/queries';
import { done } from '~/components/toast';
import { whyNot } from '~/domain/provider';
import { Frame } from './Frame';
import styles from './Frame.module.css';

export default function Confirmed() {
  const { next = '/', failed, provider } = useSearch({ strict: false }) as Record<string, string | undefined>;
  const router = useRouter();
  const options = useQuery({ ...signInOptionsQuery, enabled: !!failed });
  useEffect(() => {
    if (failed) return;
    done('Confirmed that it is you. Your change was not made yet: make it again.');
    router.history.replace(next);
  }, [failed, next, router]);
  if (!failed) return null;
  const name = options.data?.providers.find(({ slug }) => slug === provider)?.name ?? 'The provider';
  return (
    <Frame title="Not confirmed">
      <p role="alert" className={styles.error}>
        {whyNot(failed, name)}
      </p>
      <p>
        <a href={next}>Back to where you were</a>
      </p>
    </Frame>
  );
}
