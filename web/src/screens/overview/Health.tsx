import { Tooltip } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { statusQuery } from '~/api/traffic';
import type { ProcessStatus, Status } from '~/api/types';
import { Outcome } from '~/components/Outcome';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import { LoadingLines } from '~/components/states';
import { duration, percent, plural, shortNumber } from '~/domain/format';
import { ailments, redisOf } from './ailments';
import styles from './Overview.module.css';

/** How the database, Redis and every process that answers checks are. */
export function Health() {
  const status = useQuery(statusQuery);
  return (
    <Card title="Health" flush>
      <Query query={status} loading={<LoadingLines lines={4} />}>
        {(data) => <Parts status={data} />}
      </Query>
    </Card>
  );
}

function Parts({ status }: { status: Status }) {
  const { database, processes } = status;
  const redis = redisOf(status);
  return (
    <ul className={styles.health}>
      <li>
        <Part name="Database" note={`answers in ${duration(Math.max(1, database.latency_ms))}`} />
        <Outcome tone="allowed">Up</Outcome>
      </li>
      <li>
        <Part name="Redis" note={redis.note} />
        <Outcome tone={redis.tone}>{redis.word}</Outcome>
      </li>
      {processes.map((process) => (
        <Process key={process.process_id} process={process} at={status.at} />
      ))}
      {processes.length === 0 && (
        <li>
          <Part name="No process answers checks" note="None reported within the last minute." />
          <Outcome tone="denied">Down</Outcome>
        </li>
      )}
    </ul>
  );
}

function Process({ process, at }: { process: ProcessStatus; at: string }) {
  const found = ailments(process, Date.parse(at));
  const { name, version, rules, rules_age_ms, checks_per_second, degraded_share } = process;
  const rate = `${shortNumber(Math.round(checks_per_second * 10) / 10)} checks/s`;
  const age = rules_age_ms === null ? null : `rules ${duration(rules_age_ms)} old`;
  const facts = [rate, age, degraded_share > 0 && `${percent(degraded_share)} degraded`].filter(Boolean);
  return (
    <li>
      <Tooltip label={`Version ${version}, ${plural(rules, 'rule')} in memory`}>
        <span>
          <Part name={name} note={found.length > 0 ? found.join(', ') : facts.join(' · ')} />
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
