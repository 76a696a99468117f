import { Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { statusQuery, tenantStatusQuery } from '~/api/traffic';
import type { ProcessStatus, Status, TenantStatus } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { duration, percent, plural, shortNumber } from '~/domain/format';
import { useSession, useTenant } from '~/session';
import { ailments, oldRules, redisOf } from './ailments';
import styles from './Overview.module.css';

/** One line while all is well; else the tenant’s checks and, for platform admins, the database and every process. */
export function Health() {
  const status = useQuery(tenantStatusQuery(useTenant()));
  const { account } = useSession();
  const all = useQuery({ ...statusQuery, enabled: account.platform_admin });
  const isWell = status.data && isUp(status.data) && (all.data ? areUp(all.data) : !account.platform_admin);
  if (isWell) return <Well status={status.data} processes={all.data?.processes.length} />;
  return (
    <Card title="Health" flush>
      <Query query={status} loading={<LoadingLines lines={4} />}>
        {(data) => <Own status={data} />}
      </Query>
      {account.platform_admin && (
        <Query query={all} loading={<LoadingLines lines={4} />}>
          {(data) => <Parts status={data} />}
        </Query>
      )}
    </Card>
  );
}

function isUp({ answering, degraded_share, redis, rules_age_ms }: TenantStatus): boolean {
  const hasRules = rules_age_ms !== null && rules_age_ms <= oldRules;
  return answering === 'up' && degraded_share === 0 && (redis === 'up' || redis === 'memory') && hasRules;
}

function areUp({ processes, at }: Status): boolean {
  return processes.length > 0 && processes.every((process) => ailments(process, Date.parse(at)).length === 0);
}

function Well({ status, processes }: { status: TenantStatus; processes: number | undefined }) {
  const rate = shortNumber(Math.round(status.checks_per_second * 10) / 10);
  const parts = [
    status.share_denied === null ? 'no checks in the last 5 full minutes' : `${rate} checks/s`,
    status.redis === 'up' ? 'Redis up' : 'buckets in memory',
    processes !== undefined && `database up · ${plural(processes, 'process', 'processes')}`,
  ];
  return (
    <section aria-label="Health" className={styles.well}>
      <Outcome tone="allowed">All systems up</Outcome>
      <span className="soft numeric">{parts.filter(Boolean).join(' · ')}</span>
    </section>
  );
}

/** The status that every member may see: the tenant’s traffic, Redis, and the age of the rules. */
function Own({ status }: { status: TenantStatus }) {
  const { answering, checks_per_second, share_denied, degraded_share, rules_age_ms } = status;
  const redis = redisOf(status);
  const rate = `${shortNumber(Math.round(checks_per_second * 10) / 10)} per second`;
  const traffic = [
    share_denied === null
      ? 'no checks in the last 5 full minutes'
      : `${rate} in the last 5 minutes, ${percent(share_denied)} denied`,
    degraded_share > 0 && `${percent(degraded_share)} degraded`,
  ];
  return (
    <ul className={styles.health}>
      <li>
        <Part
          name="Checks"
          note={answering === 'up' ? traffic.filter(Boolean).join(' · ') : 'No process is serving checks.'}
        />
        {answering === 'down' ? (
          <Outcome tone="denied">Down</Outcome>
        ) : degraded_share > 0 ? (
          <Outcome tone="degraded">Degraded</Outcome>
        ) : (
          <Outcome tone="allowed">Up</Outcome>
        )}
      </li>
      <li>
        <Part name="Redis" note={redis.note} />
        <Outcome tone={redis.tone}>{redis.word}</Outcome>
      </li>
      {rules_age_ms !== null && (
        <li>
          <Part name="Rules" note={`loaded ${duration(rules_age_ms)} ago`} />
          {rules_age_ms > oldRules ? (
            <Outcome tone="degraded">Stale</Outcome>
          ) : (
            <Outcome tone="allowed">Up to date</Outcome>
          )}
        </li>
      )}
    </ul>
  );
}

function Parts({ status }: { status: Status }) {
  const { database, processes } = status;
  return (
    <ul className={styles.health} aria-label="Installation">
      <li>
        <Part name="Database" note={`answers in ${duration(Math.max(1, database.latency_ms))}`} />
        <Outcome tone="allowed">Up</Outcome>
      </li>
      {processes.map((process) => (
        <Process key={process.process_id} process={process} at={status.at} />
      ))}
      {processes.length === 0 && (
        <li>
          <Part name="No process is serving checks" note="No process reported within the last minute." />
          <Outcome tone="denied">Down</Outcome>
        </li>
      )}
    </ul>
  );
}

function Process({ process, at }: { process: ProcessStatus; at: string }) {
  const found = ailments(process, Date.parse(at));
  const { name, version, rules, rules_age_ms, checks_per_second, degraded_share } = process;
  const rate = `${shortNumber(Math.round(checks_per_second * 10) / 10)} checks/s of all tenants`;
  const age = rules_age_ms === null ? null : `rules ${duration(rules_age_ms)} old`;
  const facts = [rate, age, degraded_share > 0 && `${percent(degraded_share)} degraded`].filter(Boolean);
  return (
    <li>
      <Tooltip label={`Version ${version}, ${plural(rules, 'rule')} in memory`}>
        <span>
          <Part name={`Process ${name}`} note={found.length > 0 ? found.join(', ') : facts.join(' · ')} />
        </span>
      </Tooltip>
      {found.length > 0 ? <Outcome tone="degraded">Degraded</Outcome> : <Outcome tone="allowed">Up</Outcome>}
    </li>
  );
}

function Part({ name, note }: { name: string; note: string }) {
  return (
    <span className={styles.part}>
      <strong>{name}</strong>
      <span className="soft numeric">{note}</span>
    </span>
  );
}
