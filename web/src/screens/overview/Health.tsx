import { Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { statusQuery, tenantStatusQuery } from '~/api/traffic';
import type { ProcessStatus, Status, TenantStatus } from '~/api/types';
import { Outcome, type Tone } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { duration, percent, plural, rateText } from '~/domain/format';
import { useSession, useTenant } from '~/session';
import { ailments, oldRules, redisOf } from './ailments';
import styles from './Overview.module.css';

export function Health() {
  const status = useQuery(tenantStatusQuery(useTenant()));
  const { account } = useSession();
  const all = useQuery({ ...statusQuery, enabled: account.platform_admin });
  const isWell = status.data && isUp(status.data) && (all.data ? areUp(all.data) : !account.platform_admin);
  if (isWell) return <Well status={status.data} processes={all.data?.processes.length} />;
  return (
    <Card title="Health" flush>
      <Query query={status} loading={<LoadingLines lines={4} />}>
        {(data) => <Parts parts={ofTenant(data)} />}
      </Query>
      {account.platform_admin && (
        <Query query={all} loading={<LoadingLines lines={4} />}>
          {(data) => <Parts label="Installation" parts={ofInstallation(data)} />}
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
  const parts = [
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

interface Part {
  name: string;
  note: string;
  tone: Tone;
  word: string;
  id?: string;
  hint?: string;
}

function Parts({ label, parts }: { label?: string; parts: Part[] }) {
  return (
    <ul className={styles.health} aria-label={label}>
      {parts.map(({ name, note, tone, word, id, hint }) => (
        <li key={id ?? name}>
          <Tooltip label={hint} disabled={!hint}>
            <span className={styles.part}>
              <strong>{name}</strong>
              <span className="soft numeric">{note}</span>
            </span>
          </Tooltip>
          <Outcome tone={tone}>{word}</Outcome>
        </li>
      ))}
    </ul>
  );
}

const up = { tone: 'allowed', word: 'Up' } as const;
const down = { tone: 'denied', word: 'Down' } as const;
const degraded = { tone: 'degraded', word: 'Degraded' } as const;

/** The status that every member may see: the tenant’s traffic, Redis, and the age of the rules. */
function ofTenant(status: TenantStatus): Part[] {
  const { answering, checks_per_second, share_denied, degraded_share, rules_age_ms } = status;
  const traffic = [
    share_denied === null
      ? 'no checks in the last 5 full minutes'
      : `${rateText(checks_per_second)} per second in the last 5 minutes, ${percent(share_denied)} denied`,
    degraded_share > 0 && `${percent(degraded_share)} degraded`,
  ];
  const parts: Part[] = [
    answering === 'down'
      ? { name: 'Checks', note: 'No process is serving checks.', ...down }
      : { name: 'Checks', note: traffic.filter(Boolean).join(' · '), ...(degraded_share > 0 ? degraded : up) },
    { name: 'Redis', ...redisOf(status) },
  ];
  if (rules_age_ms !== null) {
    const age = { name: 'Rules', note: `loaded ${duration(rules_age_ms)} ago` };
    const isOld = rules_age_ms > oldRules;
    parts.push({ ...age, ...(isOld ? { ...degraded, word: 'Stale' } : { ...up, word: 'Up to date' }) });
  }
  return parts;
}

function ofInstallation({ database, processes, at }: Status): Part[] {
  const answers = `answers in ${duration(Math.max(1, database.latency_ms))}`;
  const nobody = { name: 'No process is serving checks', note: 'No process reported within the last minute.', ...down };
  return [
    { name: 'Database', note: answers, ...up },
    ...(processes.length === 0 ? [nobody] : processes.map((process) => ofProcess(process, Date.parse(at)))),
  ];
}

function ofProcess(process: ProcessStatus, now: number): Part {
  const found = ailments(process, now);
  const { process_id, name, version, rules, rules_age_ms, checks_per_second } = process;
  const facts = [
    `${rateText(checks_per_second)} checks/s of all tenants`,
    rules_age_ms !== null && `rules ${duration(rules_age_ms)} old`,
  ];
  return {
    id: process_id,
    name: `Process ${name}`,
    note: found.length > 0 ? found.join(', ') : facts.filter(Boolean).join(' · '),
    hint: `Version ${version}, ${plural(rules, 'rule')} in memory`,
    ...(found.length > 0 ? degraded : up),
  };
}
