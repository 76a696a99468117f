import { Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { Violation, ViolationDetail } from '~/api/types';
import { violationQuery } from '~/api/violations';
import { Copy } from '~/components/Copy';
import { Facts } from '~/components/Facts';
import { IconTry } from '~/components/icons';
import { LinkButton } from '~/components/LinkButton';
import { RuleLink } from '~/components/RuleLink';
import { SidePanel } from '~/components/SidePanel';
import { ErrorState, LoadingLines } from '~/components/states';
import { Duration, RelativeTime } from '~/components/Time';
import { exactNumber, exactTime, plural } from '~/domain/format';
import { exactAmount } from '~/domain/meter';
import { splitsByUser } from '~/domain/pattern';
import { hasRate, limitSentence } from '~/domain/rate';
import { ruleTitle } from '~/domain/rule';
import { endpointOf, whatHappened, who } from '~/domain/violation';
import type { TrySearch } from '~/search';
import { useRole } from '~/session';
import { OutcomeOf } from './columns';
import styles from './violations.module.css';

interface Props {
  tenant: string;
  id: string | undefined;
  rows: Violation[];
  onOpen: (id: string | undefined) => void;
  block: (ip: string) => ReactNode;
}

export function ViolationPanel({ tenant, id, rows, onOpen, block }: Props) {
  const query = useQuery({ ...violationQuery(tenant, id ?? ''), enabled: id !== undefined });
  const index = rows.findIndex(({ violation_id }) => violation_id === id);
  const shown = query.data?.violation ?? rows[index];
  const step = (to: number) => {
    const row = index < 0 ? undefined : rows[to];
    return row && (() => onOpen(row.violation_id));
  };
  return (
    <SidePanel
      opened={id !== undefined}
      onClose={() => onOpen(undefined)}
      title="Violation"
      beside={shown && <OutcomeOf violation={shown} />}
      onPrevious={step(index - 1)}
      onNext={step(index + 1)}
    >
      {shown ? (
        <Story tenant={tenant} violation={shown} detail={query.data} onOpen={onOpen} block={block} />
      ) : query.isError ? (
        <ErrorState error={query.error} onRetry={() => query.refetch()} />
      ) : (
        <LoadingLines />
      )}
    </SidePanel>
  );
}

interface StoryProps {
  tenant: string;
  violation: Violation;
  detail: ViolationDetail | undefined;
  onOpen: (id: string) => void;
  block: Props['block'];
}

function Story({ tenant, violation, detail, onOpen, block }: StoryProps) {
  return (
    <>
      <p className={styles.sentence}>{whatHappened(violation)}</p>
      {detail && <InMinute violation={violation} detail={detail} />}
      <Acts tenant={tenant} violation={violation} removed={detail?.rule === null} block={block} />
      <Details tenant={tenant} violation={violation} detail={detail} />
      {detail && detail.beside.length > 0 && <Beside detail={detail} onOpen={onOpen} />}
    </>
  );
}

function InMinute({ violation, detail }: { violation: Violation; detail: ViolationDetail }) {
  const { denied_in_minute, rule } = detail;
  const more = denied_in_minute > violation.count;
  const edited = rule && rule.version !== violation.rule_version;
  if (!more && !edited && rule) return null;
  return (
    <ul className={styles.notes}>
      {more && (
        <li>
          In that minute the rule {violation.mode === 'shadow' ? 'would have denied' : 'denied'}{' '}
          {violation.scope === 'user' ? 'this user' : 'this bucket'} {plural(denied_in_minute, 'time')} in total.
        </li>
      )}
      {edited && (
        <li>
          The rule was edited since.{' '}
          {rule.action === 'limit' ? `It is now ${limitSentence(rule)}.` : `It now is a ${rule.action} rule.`}
        </li>
      )}
      {!rule && <li>The rule was removed since.</li>}
    </ul>
  );
}

interface ActsProps {
  tenant: string;
  violation: Violation;
  removed: boolean; // its rule
  block: Props['block'];
}

function Acts({ tenant, violation, removed, block }: ActsProps) {
  const { edit } = useRole();
  const { user_id, rule_id, ip_address, key_pattern, mode, reason } = violation;
  const overridable =
    edit && !removed && user_id !== null && mode === 'enforce' && reason !== 'blocked' && splitsByUser(key_pattern);
  return (
    <div className={styles.acts}>
      {overridable && (
        <LinkButton to="/t/$tenant/users/$user" params={{ tenant, user: user_id }} search={{ override: rule_id }}>
          Override limit
        </LinkButton>
      )}
      {user_id !== null && (
        <LinkButton variant="default" to="/t/$tenant/users/$user" params={{ tenant, user: user_id }}>
          Open user {user_id}
        </LinkButton>
      )}
      {user_id === null && ip_address !== null && (
        <LinkButton variant="default" to="/t/$tenant/violations" params={{ tenant }} search={{ ip: ip_address }}>
          View all from {ip_address}
        </LinkButton>
      )}
      <LinkButton
        variant="default"
        leftSection={<IconTry size={14} />}
        to="/t/$tenant/try"
        params={{ tenant }}
        search={checkThen(violation)}
      >
        Try it
      </LinkButton>
      {edit && ip_address !== null && reason !== 'blocked' && block(ip_address)}
    </div>
  );
}

/** Attributes are not recorded. */
function checkThen({ user_id, plan, endpoint, method, ip_address, cost }: Violation): TrySearch {
  const given = {
    user: user_id,
    plan,
    endpoint,
    method,
    ip: ip_address,
    cost: cost === 1 ? null : String(cost),
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null));
}

function Details({ tenant, violation, detail }: Omit<StoryProps, 'onOpen' | 'block'>) {
  const { user_id, ip_address, plan, cost, tokens_at_time, queue_ms, retry_after_ms, rule_id } = violation;
  return (
    <Facts
      facts={{
        When: when(violation),
        User: user_id !== null && (
          <Link to="/t/$tenant/users/$user" params={{ tenant, user: user_id }}>
            {user_id}
          </Link>
        ),
        Address: ip_address !== null && (
          <Link to="/t/$tenant/violations" params={{ tenant }} search={{ ip: ip_address }}>
            {ip_address}
          </Link>
        ),
        Plan: plan,
        Endpoint: endpointOf(violation),
        Rule: detail?.rule ? (
          <RuleLink tenant={tenant} id={rule_id} rule={detail.rule} />
        ) : (
          ruleTitle({ ...violation, name: '' })
        ),
        'Limit at that time': violation.limit_text || null,
        Cost: `${exactAmount(cost, violation.meter)} each`,
        [hasRate(violation.algorithm) ? 'Tokens left' : 'Left']:
          tokens_at_time !== null && exactAmount(Math.floor(tokens_at_time * 100) / 100, violation.meter),
        'Delay of the queue': queue_ms !== null && <Duration ms={queue_ms} />,
        Wait: retry_after_ms === null ? 'Waiting would not have helped' : <Duration ms={retry_after_ms} />,
        'Bucket key': (
          <span className={styles.copied}>
            <code>{violation.bucket_key}</code>
            <Copy value={violation.bucket_key} label="Copy bucket key" />
          </span>
        ),
      }}
    />
  );
}

function when({ requested_at, last_at }: Violation): React.ReactNode {
  return (
    <>
      {exactTime(Date.parse(requested_at))}{' '}
      <span className="soft">
        (<RelativeTime at={last_at} />)
      </span>
    </>
  );
}

function Beside({ detail: { violation, beside }, onOpen }: { detail: ViolationDetail; onOpen: (id: string) => void }) {
  return (
    <section>
      <h3>{who(violation)} in the same minute</h3>
      <ul className={styles.beside}>
        {beside.slice(0, 20).map((one) => (
          <li key={one.violation_id}>
            <button type="button" onClick={() => onOpen(one.violation_id)}>
              <Tooltip label={exactTime(Date.parse(one.requested_at))}>
                <time dateTime={one.requested_at} className="numeric">
                  :{one.requested_at.slice(17, 19)}
                </time>
              </Tooltip>
              <OutcomeOf violation={one} />
              <span className={styles.besideWhat}>{endpointOf(one) ?? ruleTitle({ ...one, name: '' })}</span>
              <span className="numeric soft">× {exactNumber(one.count)}</span>
            </button>
          </li>
        ))}
      </ul>
      {beside.length > 20 && <p className="soft">and {beside.length - 20} more</p>}
    </section>
  );
}
