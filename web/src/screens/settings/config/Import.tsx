import { Button, Checkbox, FileButton, Group, Textarea } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { changed } from '~/api/changes';
import { api } from '~/api/client';
import { ProblemError, sentence } from '~/api/problem';
import { Effect } from '~/components/Effect';
import { IconUpload } from '~/components/icons';
import { Leaving } from '~/components/Leaving';
import { Card } from '~/components/Page';
import { done } from '~/components/toast';
import { plural } from '~/domain/format';
import styles from './Config.module.css';
import { ConfigDiffView, changesIn } from './ConfigDiffView';

const placeholder = `plans:
  - name: free
rules:
  - key_pattern: "user:{user_id}"
    plan: free
    rate: 10/second
    burst_capacity: 50`;

/** Longer files are not looked at for their effect. */
const mostOfEffect = 500_000;

export function Import({ tenant }: { tenant: string }) {
  const queries = useQueryClient();
  const [text, setText] = useState('');
  const [prune, setPrune] = useState(false);

  const send = (dry_run: boolean) =>
    api.post('/api/v1/tenants/{tenant}/import', {
      tenant,
      dry_run,
      prune,
      body: text,
      bodySerializer: (file) => file,
      headers: { 'Content-Type': 'application/yaml' },
    });
  const preview = useMutation({ mutationFn: () => send(true) });
  const apply = useMutation({
    mutationFn: () => send(false),
    onSuccess: async (diff) => {
      await changed(queries, tenant, 'plan', 'rule', 'override', 'gateway');
      done(`${plural(changesIn(diff), 'change')} applied. All checks follow within 2 s`);
      edit('');
    },
  });

  /** An edit drops the preview, so that only a previewed text is applied. */
  function edit(next: string) {
    setText(next);
    preview.reset();
    apply.reset();
  }

  const diff = preview.data;
  const changes = diff ? changesIn(diff) : 0;
  const error = apply.error ?? preview.error;
  return (
    <Card title="Import">
      <div className={styles.import}>
        <Group gap={8}>
          <FileButton
            accept=".yaml,.yml,application/yaml,text/yaml"
            onChange={async (file) => file && edit(await file.text())}
          >
            {(props) => (
              <Button {...props} variant="default" leftSection={<IconUpload size={15} aria-hidden />}>
                Choose a file
              </Button>
            )}
          </FileButton>
          <span className="soft">or paste it</span>
        </Group>
        <Textarea
          aria-label="YAML"
          placeholder={placeholder}
          autosize
          minRows={8}
          maxRows={24}
          spellCheck={false}
          value={text}
          classNames={{ input: styles.yaml }}
          onChange={(event) => edit(event.currentTarget.value)}
        />
        <Checkbox
          label="Remove plans, rules and overrides that are not in the file"
          checked={prune}
          onChange={(event) => {
            setPrune(event.currentTarget.checked);
            preview.reset();
            apply.reset();
          }}
        />
        {error && <WrongLines error={error} />}
        {diff && <ConfigDiffView diff={diff} />}
        {diff && diff.rules.length + diff.overrides.length > 0 && text.length <= mostOfEffect && (
          <Effect tenant={tenant} question={{ file: text, prune }} />
        )}
        <Group gap={8}>
          {diff && changes > 0 ? (
            <>
              <Button loading={apply.isPending} onClick={() => apply.mutate()}>
                Apply {plural(changes, 'change')}
              </Button>
              <Button variant="default" onClick={() => preview.reset()}>
                Back
              </Button>
            </>
          ) : (
            <Button disabled={text.trim() === ''} loading={preview.isPending} onClick={() => preview.mutate()}>
              Review changes
            </Button>
          )}
        </Group>
      </div>
      <Leaving when={text.trim() !== ''} what="The pasted file" />
    </Card>
  );
}

function WrongLines({ error }: { error: unknown }) {
  const errors = (error instanceof ProblemError && error.document.errors) || [];
  return (
    <div role="alert" className={styles.wrong}>
      {errors.length === 0 && <p>{sentence(error)}</p>}
      <ul>
        {errors.map(({ pointer, detail }) => {
          const line = /^\/lines\/(\d+)$/.exec(pointer)?.[1];
          return (
            <li key={`${pointer} ${detail}`}>
              {line && <strong>Line {line}: </strong>}
              {detail}
            </li>
          );
        })}
      </ul>
    </div>
  );
}
