import { Button, Progress } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { timeColumn } from '~/components/columns';
import { type Column, DataTable } from '~/components/DataTable';
import { IconHistory, IconPlay } from '~/components/icons';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { EmptyState } from '~/components/states';
import { percent, timeSpan } from '~/domain/format';
import { type Replay, recordingQuery, replaysQuery } from '~/features/replay/queries';
import { StartReplay } from '~/features/replay/StartReplay';
import { headings } from '~/headings';
import { useRole, useTenant } from '~/session';
import { RecordingCard, StartRecording } from './RecordingCard';
import { stateWords } from './words';

const columns: Column<Replay>[] = [
  { key: 'title', header: 'Replay', render: (replay) => replay.title || `Replay ${replay.replay_id}` },
  {
    key: 'range',
    header: 'Of the time',
    width: '34%',
    wide: true,
    render: ({ since, until }) => timeSpan(Date.parse(since), Date.parse(until)),
  },
  { key: 'state', header: 'State', width: 160, render: (replay) => <State replay={replay} /> },
  timeColumn('requested', 'Started', ({ requested_at }) => requested_at, { width: 116, numeric: true }),
];

function State({ replay }: { replay: Replay }) {
  if (replay.state !== 'running') return stateWords[replay.state];
  return (
    <>
      {stateWords.running} {percent(replay.progress)}
      <Progress value={100 * replay.progress} size="xs" aria-label={`Progress of replay ${replay.replay_id}`} />
    </>
  );
}

export default function Replays() {
  const tenant = useTenant();
  const { edit } = useRole();
  const navigate = useNavigate();
  const recording = useQuery(recordingQuery(tenant));
  const replays = useQuery(replaysQuery(tenant));
  const search = useSearch({ from: '/shell/t/$tenant/replays' });
  const startable = edit && recording.data && recording.data.checks > 0;
  const start = startable && (
    <Button
      leftSection={<IconPlay size={15} aria-hidden />}
      onClick={() => navigate({ to: '.', search: { open: 'new' } })}
    >
      New replay
    </Button>
  );
  return (
    <Page {...headings.replays} actions={start}>
      <Query query={recording}>
        {(data) =>
          data.record_days === 0 && data.checks === 0 ? (
            <StartRecording tenant={tenant} recording={data} />
          ) : (
            <RecordingCard tenant={tenant} recording={data} />
          )
        }
      </Query>
      <Query query={replays}>
        {(all) =>
          all.length === 0 && recording.data?.checks === 0 ? null : (
            <Card title="Replays" flush>
              {all.length === 0 ? (
                <EmptyState icon={IconHistory} title="No replays yet" action={start} />
              ) : (
                <DataTable
                  label="Replays"
                  columns={columns}
                  rows={all}
                  rowKey={(replay) => replay.replay_id}
                  to={({ replay_id }) => ({
                    to: '/t/$tenant/replays/$replay',
                    params: { tenant, replay: String(replay_id) },
                  })}
                />
              )}
            </Card>
          )
        }
      </Query>
      {startable && search.open === 'new' && (
        <StartReplay
          tenant={tenant}
          begin={search}
          onClose={() => navigate({ to: '.', search: {}, replace: true, ignoreBlocker: true })}
          onStarted={({ replay_id }) =>
            navigate({
              to: '/t/$tenant/replays/$replay',
              params: { tenant, replay: String(replay_id) },
              replace: true,
              ignoreBlocker: true,
            })
          }
        />
      )}
    </Page>
  );
}
