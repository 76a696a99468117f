import { Textarea, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { keepSame, tenantKey } from '~/api/queries';
import type { AuthorizeMapping } from '~/api/types';
import { Facts } from '~/components/Facts';
import { Card } from '~/components/Page';
import { LoadingLines } from '~/components/states';
import { MatchedRules, NearMisses } from '~/features/explain/Explained';
import { Verdict } from '~/features/explain/Verdict';
import { factsOf, Refused, useRefusal } from './Checked';
import styles from './Gateways.module.css';
import { firstSample, headersOf, type SampleDraft, sampleOf } from './sample';

const pause = 300;

interface Props {
  tenant: string;
  /** Undefined while it cannot be read. */
  mapping: AuthorizeMapping | undefined;
  onRefused: (words: string | undefined) => void;
}

/** Shows the check that a sample request becomes, and the rules that match it, without taking tokens. */
export function Sample({ tenant, mapping, onRefused }: Props) {
  const [typed, setTyped] = useState(firstSample);
  const { sample, errors } = sampleOf(typed, mapping);
  const [asked] = useDebouncedValue(mapping ? JSON.stringify(sample) : undefined, pause);
  const queryKey = tenantKey(tenant, 'gateways', 'try', asked);
  const answer = useQuery({
    queryKey,
    queryFn: ({ signal }) =>
      api.post('/api/v1/tenants/{tenant}/gateways/authorize/try', { tenant, body: JSON.parse(asked ?? '{}'), signal }),
    enabled: asked !== undefined,
    staleTime: 0,
    placeholderData: keepSame(queryKey),
  });
  useRefusal(answer.error, onRefused);
  const field = (name: keyof SampleDraft) => ({
    value: typed[name],
    error: errors[name],
    autoComplete: 'off',
    spellCheck: false,
    classNames: { input: styles.code },
    onChange: (event: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) =>
      setTyped({ ...typed, [name]: event.currentTarget.value }),
  });

  return (
    <>
      <Card title="Try a request">
        <div className={styles.stack}>
          <div className={styles.request}>
            <TextInput label="Method" {...field('method')} />
            <TextInput label="URL" {...field('url')} />
          </div>
          <Textarea
            label="Headers"
            description={`One per line. The mapping reads ${headersOf(mapping ?? {}).join(', ')}`}
            autosize
            minRows={2}
            maxRows={10}
            {...field('headers')}
          />
          {mapping?.jwt && (
            <Textarea
              label="Claims of the token"
              description="JSON. No token is verified here"
              autosize
              minRows={1}
              maxRows={8}
              {...field('claims')}
            />
          )}
          <h3>The check</h3>
          {!mapping ? (
            <p className="soft">Correct the JSON of the mapping first.</p>
          ) : answer.isError ? (
            <Refused error={answer.error} />
          ) : answer.data ? (
            <Facts facts={factsOf(answer.data.check)} />
          ) : (
            <LoadingLines lines={3} />
          )}
        </div>
      </Card>
      {mapping && !answer.isError && answer.data && (
        <>
          <Verdict explanation={answer.data.explanation} />
          <MatchedRules tenant={tenant} explanation={answer.data.explanation} />
          <NearMisses tenant={tenant} explanation={answer.data.explanation} />
        </>
      )}
    </>
  );
}
