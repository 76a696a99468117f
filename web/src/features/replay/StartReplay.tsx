import {
  Button,
  Checkbox,
  FileButton,
  NativeSelect,
  NumberInput,
  SegmentedControl,
  Textarea,
  TextInput,
} from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { serverNow } from '~/api/clock';
import { Dialog } from '~/components/Dialog';
import { FormDialog } from '~/components/FormDialog';
import type { ReplaysSearch } from '~/search';
import { LimitFields } from './LimitFields';
import { type NewReplay, type Replay, recordingQuery, startReplay } from './queries';
import { TimeFields } from './TimeFields';
import { momentsOf, timeDraft, timeProblem } from './time';
import { useLimitDraft } from './useLimitDraft';

/** Left out, the form asks for one limit or a file. */
type Candidate = Pick<NewReplay, 'rules' | 'remove'>;

interface Props {
  tenant: string;
  candidate?: Candidate;
  title?: string;
  begin?: ReplaysSearch;
  onClose: () => void;
  /** By default the dialog shows a link to the replay, so that unsaved edits stay. */
  onStarted?: (replay: Replay) => void;
}

const samples = [
  { value: '0', label: 'All that was recorded' },
  { value: '1', label: 'A quarter of the users' },
  { value: '2', label: '1 user of 16' },
  { value: '3', label: '1 user of 64' },
];

const kinds = [
  { value: 'limit', label: 'One limit' },
  { value: 'file', label: 'Rules in YAML' },
];

const placeholder = `rules:
  - key_pattern: "user:{user_id}"
    plan: free
    rate: 10/second
    burst_capacity: 50`;

export function StartReplay({ tenant, candidate, title, begin = {}, onClose, onStarted }: Props) {
  const queries = useQueryClient();
  const { data: recording } = useQuery(recordingQuery(tenant));
  const [kind, setKind] = useState('limit');
  const one = useLimitDraft(tenant, begin, !candidate);
  const [name, setName] = useState<string | null>(null);
  const [time, setTime] = useState(() => timeDraft(begin.range, serverNow()));
  const [sample, setSample] = useState('0');
  const [seed, setSeed] = useState<number | string>(1);
  const [file, setFile] = useState('');
  const [prune, setPrune] = useState(false);
  const [started, setStarted] = useState<Replay | null>(null);

  const fromFile = !candidate && kind === 'file';
  const shownName = name ?? title ?? (fromFile ? 'Rules of a file' : one.title);
  const asked = candidate ?? (fromFile ? file.trim() !== '' && { file, prune } : one.candidate);

  async function save() {
    const { from, until } = momentsOf(time, serverNow());
    const replay = await startReplay(tenant, {
      title: shownName.trim(),
      since: new Date(from).toISOString(),
      until: new Date(until).toISOString(),
      sample: Number(sample),
      seed: Number(seed) || 0,
      ...asked,
    });
    await changed(queries, tenant, 'replay');
    if (onStarted) onStarted(replay);
    else setStarted(replay);
  }

  if (started) {
    return (
      <Dialog title="Replay started" onClose={onClose} size={440}>
        <p>What you edit here stays.</p>
        <p>
          <Link to="/t/$tenant/replays/$replay" params={{ tenant, replay: String(started.replay_id) }} target="_blank">
            Open the replay in a new tab
          </Link>
        </p>
        <Button mt="md" onClick={onClose}>
          Close
        </Button>
      </Dialog>
    );
  }
  const none = recording !== undefined && recording.checks === 0;
  const outside = !recording || timeProblem(momentsOf(time, serverNow()), recording) !== null;
  return (
    <FormDialog
      title="Replay recorded checks"
      lead={none && 'No checks are recorded yet. The page Replays has the switch.'}
      verb="Start replay"
      disabled={none || outside || !asked}
      onClose={onClose}
      onSaved={() => undefined}
      save={save}
    >
      {(wrong) => (
        <>
          {!candidate && (
            <SegmentedControl fullWidth aria-label="Replay of" data={kinds} value={kind} onChange={setKind} />
          )}
          {!candidate && !fromFile && <LimitFields {...one} wrong={wrong} />}
          {fromFile && (
            <>
              <FileButton
                accept=".yaml,.yml,application/yaml,text/yaml"
                onChange={async (chosen) => chosen && setFile(await chosen.text())}
              >
                {(props) => (
                  <Button {...props} variant="default">
                    Choose a file
                  </Button>
                )}
              </FileButton>
              <Textarea
                label="Rules in YAML"
                description="Replaces rules with the same pattern, plan and name; adds others"
                placeholder={placeholder}
                autosize
                minRows={6}
                maxRows={16}
                spellCheck={false}
                value={file}
                error={wrong('/file')}
                onChange={(event) => setFile(event.currentTarget.value)}
              />
              <Checkbox
                label="Without rules that are not in the file"
                checked={prune}
                onChange={(event) => setPrune(event.currentTarget.checked)}
              />
            </>
          )}
          {recording && <TimeFields draft={time} recording={recording} error={wrong('/since')} onChange={setTime} />}
          <NativeSelect
            label="Sample"
            description="A sample is faster, and its figures have an error"
            data={samples}
            value={sample}
            onChange={(event) => setSample(event.currentTarget.value)}
          />
          {sample !== '0' && (
            <NumberInput
              label="Seed"
              description="The same seed chooses the same users"
              value={seed}
              min={0}
              max={1_000_000}
              allowDecimal={false}
              allowNegative={false}
              onChange={setSeed}
            />
          )}
          <TextInput
            label="Title"
            value={shownName}
            maxLength={200}
            error={wrong('/title')}
            onChange={(event) => setName(event.currentTarget.value)}
          />
        </>
      )}
    </FormDialog>
  );
}
