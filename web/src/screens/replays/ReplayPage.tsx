import { Button, Progress } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import { changed } from '~/api/changes';
import { sentence } from '~/api/problem';
import { CodeBlock } from '~/components/CodeBlock';
import { Card, Page } from '~/components/Page';
import { Query } from '~/components/Query';
import { percent, timeSpan } from '~/domain/format';
import { cancelReplay, isUnderWay, type Replay, replayQuery } from '~/features/replay/queries';
import { useRole, useTenant } from '~/session';
import { Result } from './Result';
import { stateWords } from './words';

export default function ReplayPage() {
  const tenant = useTenant();
  const { replay: id } = useParams({ from: '/shell/t/$tenant/replays/$replay' });
  const replay = useQuery(replayQuery(tenant, id));
  return <Query query={replay}>{(data) => <Loaded tenant={tenant} replay={data} />}</Query>;
}

function Loaded({ tenant, replay }: { tenant: string; replay: Replay }) {
  const { edit } = useRole();
  const queries = useQueryClient();
  const cancel = useMutation({
    mutationFn: () => cancelReplay(tenant, replay.replay_id),
    onSuccess: () => changed(queries, tenant, 'replay'),
  });
  const { since, until, recorded_since } = replay.result ?? { ...replay, recorded_since: null };
  const span = timeSpan(Date.parse(recorded_since ?? since), Date.parse(until));
  return (
    <Page
      title={replay.title || `Replay ${replay.replay_id}`}
      lead={`Checks from ${span}, asked by ${replay.requested_by}`}
      above={
        <Link to="/t/$tenant/replays" params={{ tenant }}>
          Replays
        </Link>
      }
      actions={
        edit &&
        isUnderWay(replay) && (
          <Button variant="default" loading={cancel.isPending} onClick={() => cancel.mutate()}>
            Cancel
          </Button>
        )
      }
    >
      {cancel.isError && <p role="alert">{sentence(cancel.error)}</p>}
      {replay.result ? (
        <Result tenant={tenant} replay={replay} result={replay.result} />
      ) : (
        <Card title={stateWords[replay.state]}>
          <p role="status">{inWords(replay)}</p>
          {isUnderWay(replay) && <Progress value={100 * replay.progress} mt="sm" aria-label="Progress of the replay" />}
        </Card>
      )}
      {replay.file && (
        <Card
          title="Candidate"
          lead={
            replay.prune
              ? 'These rules, and no others.'
              : 'These rules replace those with the same pattern, plan and name.'
          }
        >
          <CodeBlock code={replay.file} label="the candidate" />
        </Card>
      )}
    </Page>
  );
}

function inWords({ state, progress, failure }: Replay): string {
  switch (state) {
    case 'waiting':
      return 'One replay of a tenant runs at a time.';
    case 'running':
      return `${percent(progress)} of the time is replayed.`;
    case 'failed':
      return failure ?? 'It failed.';
    case 'canceled':
      return 'It was canceled and has no result.';
    case 'done':
      return 'It is done.';
  }
}
