import { SegmentedControl, Textarea, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api } from '~/api/client';
import { keepSame, tenantKey } from '~/api/queries';
import type { DescriptorMapping } from '~/api/types';
import { Facts } from '~/components/Facts';
import { Card } from '~/components/Page';
import { LoadingLines } from '~/components/states';
import { MatchedRules, NearMisses } from '~/features/explain/Explained';
import { Verdict } from '~/features/explain/Verdict';
import { factsOf, Refused, useRefusal } from './Checked';
import { descriptorsOf, firstDescriptors } from './descriptorSample';
import styles from './Gateways.module.css';

const pause = 300;

interface Props {
  tenant: string;
  /** Undefined while it cannot be read. */
  mapping: DescriptorMapping | undefined;
  onRefused: (words: string | undefined) => void;
}

/** Shows the checks that sample descriptors become, and the rules that match them, without taking tokens. */
export function DescriptorSample({ tenant, mapping, onRefused }: Props) {
  const [domain, setDomain] = useState(Object.keys(mapping?.domains ?? {})[0] ?? tenant);
  const [descriptors, setDescriptors] = useState(firstDescriptors);
  const [chosen, setChosen] = useState(0);
  const { sample, error } = descriptorsOf({ domain, descriptors }, mapping);
  const [asked] = useDebouncedValue(mapping && sample ? JSON.stringify(sample) : undefined, pause);
  const queryKey = tenantKey(tenant, 'gateways', 'try descriptors', asked);
  const answer = useQuery({
    queryKey,
    queryFn: ({ signal }) =>
      api.post('/api/v1/tenants/{tenant}/gateways/descriptors/try', {
        tenant,
        body: JSON.parse(asked ?? '{}'),
        signal,
      }),
    enabled: asked !== undefined,
    staleTime: 0,
    placeholderData: keepSame(queryKey),
  });
  useRefusal(answer.error, onRefused);
  const results = answer.data?.results ?? [];
  const at = Math.min(chosen, results.length - 1);
  const result = results[at];
  const isShown = mapping !== undefined && !answer.isError && answer.data !== undefined;

  return (
    <>
      <Card title="Try descriptors">
        <div className={styles.stack}>
          <TextInput
            label="Domain"
            autoComplete="off"
            spellCheck={false}
            classNames={{ input: styles.code }}
            value={domain}
            onChange={(event) => setDomain(event.currentTarget.value)}
          />
          <Textarea
            label="Descriptors"
            description="key=value,key=value, one descriptor per line; or a request as JSON"
            autosize
            minRows={2}
            maxRows={16}
            spellCheck={false}
            classNames={{ input: styles.code }}
            value={descriptors}
            error={error}
            onChange={(event) => setDescriptors(event.currentTarget.value)}
          />
          <h3>The checks</h3>
          {mapping === undefined ? (
            <p className="soft">Correct the JSON of the mapping first.</p>
          ) : answer.isError ? (
            <Refused error={answer.error} />
          ) : answer.data === undefined ? (
            <LoadingLines lines={3} />
          ) : !answer.data.answered ? (
            <p role="status">This tenant does not answer the domain: requests pass, without limits.</p>
          ) : null}
          {isShown && result && (
            <>
              {results.length > 1 && (
                <SegmentedControl
                  size="xs"
                  aria-label="Descriptor"
                  className={styles.choice}
                  data={results.map((_, index) => ({
                    value: String(index),
                    label: `Descriptor ${index + 1}`,
                  }))}
                  value={String(at)}
                  onChange={(value) => setChosen(Number(value))}
                />
              )}
              <Facts facts={factsOf(result.check)} />
              {result.replaced && (
                <p className="soft">
                  Another descriptor of this request replaces this one, so rules for its name do not match.
                </p>
              )}
              {sample?.descriptors[at]?.limit && !result.own_limit && (
                <p className="soft">Its limit is ignored, because the domain has no “own_limits”.</p>
              )}
              {result.recorded && (
                <p className="soft">Its hits are recorded: they are charged even if the explanation denies them.</p>
              )}
            </>
          )}
        </div>
      </Card>
      {isShown && result && (
        <>
          <Verdict explanation={result.explanation} />
          <MatchedRules tenant={tenant} explanation={result.explanation} />
          <NearMisses tenant={tenant} explanation={result.explanation} />
        </>
      )}
    </>
  );
}
