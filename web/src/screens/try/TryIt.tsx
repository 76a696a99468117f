import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useRef } from 'react';
import { api } from '~/api/client';
import { ProblemError } from '~/api/problem';
import { plansQuery, tenantKey } from '~/api/queries';
import { IconRefresh, IconTry } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { EmptyState, ErrorState, LoadingLines } from '~/components/states';
import { checkOf } from '~/domain/check';
import { Headers, MatchedRules, NearMisses } from '~/features/explain/Explained';
import { Verdict } from '~/features/explain/Verdict';
import { headings } from '~/headings';
import type { TrySearch } from '~/search';
import { useTenant } from '~/session';
import { CheckForm } from './CheckForm';
import { Snippets } from './Snippets';
import styles from './TryIt.module.css';

const stacked = '(width <= 1080px)';

const every = 2_000;

export default function TryIt() {
  const tenant = useTenant();
  const search = useSearch({ strict: false }) as TrySearch;
  const navigate = useNavigate();
  const plans = useQuery(plansQuery(tenant));
  const asked = Object.keys(search).length > 0;
  const answer = useQuery({
    queryKey: tenantKey(tenant, 'explain', search),
    queryFn: ({ signal }) => api.post('/api/v1/tenants/{tenant}/explain', { tenant, body: checkOf(search), signal }),
    enabled: asked,
    staleTime: 0,
    // An invalid check stays invalid.
    refetchInterval: (query) => (query.state.error instanceof ProblemError ? false : every),
  });
  const place = useRef<HTMLDivElement>(null);
  async function ask(next: TrySearch) {
    await navigate({ to: '.', search: next, resetScroll: false });
    if (matchMedia(stacked).matches) place.current?.scrollIntoView();
  }
  const fieldErrors = answer.error instanceof ProblemError && answer.error.document.errors ? answer.error : undefined;

  return (
    <Page
      {...headings.try}
      actions={
        asked && (
          <Button
            variant="default"
            leftSection={<IconRefresh size={15} aria-hidden />}
            onClick={() => answer.refetch()}
          >
            Refresh
          </Button>
        )
      }
    >
      <div className={styles.columns}>
        <div className={styles.question}>
          <Card title="Check">
            <CheckForm
              key={JSON.stringify(search)}
              search={search}
              plans={(plans.data ?? []).map(({ name }) => name)}
              error={fieldErrors}
              onAsk={ask}
            />
          </Card>
        </div>
        <div className={`${styles.answer} in-order`} ref={place}>
          {!asked ? (
            <Card>
              <Teach onAsk={ask} />
            </Card>
          ) : answer.isError && (fieldErrors || !answer.data) ? (
            <Card>
              <ErrorState error={answer.error} onRetry={fieldErrors ? undefined : () => answer.refetch()} />
            </Card>
          ) : answer.data ? (
            <>
              <Verdict explanation={answer.data} />
              <MatchedRules tenant={tenant} explanation={answer.data} />
              <NearMisses tenant={tenant} explanation={answer.data} />
              <Headers explanation={answer.data} />
            </>
          ) : (
            <Card>
              <LoadingLines />
            </Card>
          )}
          {asked && <Snippets tenant={tenant} check={checkOf(search)} />}
        </div>
      </div>
    </Page>
  );
}

const example: TrySearch = { user: '42', endpoint: '/api/reports', method: 'GET', ip: '203.0.113.9' };

function Teach({ onAsk }: { onAsk: (search: TrySearch) => void }) {
  return (
    <EmptyState
      icon={IconTry}
      title="Try a check"
      action={
        <Button variant="default" onClick={() => onAsk(example)}>
          Fill in an example
        </Button>
      }
    />
  );
}
