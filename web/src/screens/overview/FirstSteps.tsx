import { Button } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { api } from '~/api/client';
import { rulesQuery, tenantKey } from '~/api/queries';
import type { Rule } from '~/api/types';
import { CheckCode } from '~/components/CheckCode';
import { IconCheck } from '~/components/icons';
import { LinkButton } from '~/components/LinkButton';
import { Card } from '~/components/Page';
import { LoadingLines } from '~/components/states';
import { Waiting } from '~/components/Waiting';
import { plural } from '~/domain/format';
import { keyVariable } from '~/domain/snippets';
import { useRole } from '~/session';
import styles from './Overview.module.css';

const first = { user_id: '42', endpoint: '/api/search' };

export default function FirstSteps({ tenant }: { tenant: string }) {
  const { edit, own } = useRole();
  const rules = useQuery(rulesQuery(tenant));
  const keys = useQuery({
    queryKey: tenantKey(tenant, 'keys', 'any'),
    queryFn: ({ signal }) => api.get('/api/v1/tenants/{tenant}/api-keys', { tenant, limit: 1, signal }),
  });
  if (rules.isPending || keys.isPending) return <LoadingLines />;
  const limits = rules.data?.length ?? 0;
  const hasKey = (keys.data?.items.length ?? 0) > 0;
  return (
    <Card title="Get started">
      <ol className={styles.steps}>
        <Step number={1} done={limits > 0} title="Create a rule">
          <p className="soft">
            {limits > 0
              ? `${plural(limits, 'rule')} ${onPlans(rules.data ?? [])}.`
              : 'A rule limits how often each user may call your service.'}
          </p>
          <Button
            variant={limits === 0 && edit ? undefined : 'default'}
            renderRoot={(props) =>
              limits === 0 && edit ? (
                <Link {...props} to="/t/$tenant/rules/new" params={{ tenant }} search={{ first: true }} />
              ) : (
                <Link {...props} to="/t/$tenant/plans" params={{ tenant }} />
              )
            }
          >
            {limits > 0 || !edit ? 'View plans' : 'Create the first rule'}
          </Button>
        </Step>
        <Step number={2} done={hasKey} title="Create an API key">
          <p className="soft">{hasKey ? 'This tenant has a key.' : 'Your service sends it with each check.'}</p>
          <LinkButton
            variant={limits > 0 && !hasKey && own ? undefined : 'default'}
            to="/t/$tenant/settings/$section"
            params={{ tenant, section: 'keys' }}
          >
            {hasKey || !own ? 'View API keys' : 'Create a key'}
          </LinkButton>
        </Step>
        <Step number={3} done={false} title="Send a check">
          <p className="soft">
            From your service or a terminal, with <code>{keyVariable}</code> set to the key. If requests pass through
            nginx, Caddy, HAProxy or Envoy, the proxy{' '}
            <Link to="/t/$tenant/settings/$section" params={{ tenant, section: 'gateways' }}>
              can ask instead
            </Link>
            .
          </p>
          <CheckCode check={first} />
          <LinkButton variant="default" to="/t/$tenant/try" params={{ tenant }}>
            Preview a decision
          </LinkButton>
          <Waiting>Waiting for the first check …</Waiting>
        </Step>
      </ol>
    </Card>
  );
}

interface StepProps {
  number: number;
  done: boolean;
  title: string;
  children: React.ReactNode;
}

function Step({ number, done, title, children }: StepProps) {
  return (
    <li className={styles.step} data-done={done || undefined}>
      <span className={styles.number}>{done ? <IconCheck size={14} aria-label="Done:" /> : number}</span>
      <div>
        <h3>{title}</h3>
        {children}
      </div>
    </li>
  );
}

function onPlans(rules: Rule[]): string {
  const named = new Set(rules.map(({ plan }) => plan));
  const all = named.delete(null) && 'for all plans';
  const some = named.size > 0 && `on ${plural(named.size, 'plan')}`;
  return [some, all].filter(Boolean).join(' and ');
}
