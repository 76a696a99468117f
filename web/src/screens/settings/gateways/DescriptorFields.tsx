import { Button, Textarea, TextInput } from '@mantine/core';
import type { Wrong } from '~/components/FormDialog';
import { IconPlus } from '~/components/icons';
import {
  type DescriptorDraft,
  type DomainDraft,
  domainPointer,
  keyLines,
  templateLines,
} from './descriptorDraft';
import styles from './Gateways.module.css';

interface Props {
  draft: DescriptorDraft;
  wrong: Wrong;
  onChange: (draft: DescriptorDraft) => void;
}

/** The fields of a mapping of descriptors. */
export function DescriptorFields({ draft, wrong, onChange }: Props) {
  const { domains } = draft;
  const next = Math.max(-1, ...domains.map(({ id }) => id)) + 1;
  const change = (one: DomainDraft, more: Partial<DomainDraft>) =>
    onChange({
      ...draft,
      domains: domains.map((other) => (other.id === one.id ? { ...one, ...more } : other)),
    });
  const error = wrong('/domains');
  return (
    <>
      <Textarea
        label="Keys"
        description="key = field, one per line. The fields are user_id, endpoint, method, plan and ip"
        placeholder={'user_id = user_id\npath = endpoint\nmethod = method\nplan = plan\nremote_address = ip'}
        autosize
        minRows={2}
        maxRows={12}
        spellCheck={false}
        classNames={{ input: styles.code }}
        value={draft.keys}
        error={wrong('/keys') ?? errorOf(keyLines(draft), wrong)}
        onChange={(event) => onChange({ ...draft, keys: event.currentTarget.value })}
      />
      {domains.map((one, index) => (
        <fieldset key={one.id} className={styles.group}>
          <legend>{`Domain ${index + 1}`}</legend>
          <TextInput
            label={`Domain ${index + 1}: name`}
            placeholder="edge"
            value={one.name}
            autoComplete="off"
            onChange={(event) => change(one, { name: event.currentTarget.value })}
          />
          <Textarea
            label={`Domain ${index + 1}: templates`}
            description="One per line: keys, or key=value, with commas between. They name the descriptors that fit; without any, keys do"
            placeholder={'route=login,remote_address\nroute=files*\nroute'}
            autosize
            minRows={2}
            maxRows={16}
            spellCheck={false}
            classNames={{ input: styles.code }}
            value={one.templates}
            error={errorOf(templateLines(one), wrong)}
            onChange={(event) => change(one, { templates: event.currentTarget.value })}
          />
          <Textarea
            label={`Domain ${index + 1}: replaces`}
            description="A template > the template that it replaces in its request, one pair per line"
            placeholder="route=login,remote_address > route"
            autosize
            minRows={1}
            maxRows={8}
            spellCheck={false}
            classNames={{ input: styles.code }}
            value={one.replaces}
            error={wrong(`${domainPointer(one.name)}/replaces`)}
            onChange={(event) => change(one, { replaces: event.currentTarget.value })}
          />
          <div>
            <Button
              variant="default"
              onClick={() => onChange({ ...draft, domains: domains.filter(({ id }) => id !== one.id) })}
            >
              {`Remove domain ${index + 1}`}
            </Button>
          </div>
        </fieldset>
      ))}
      {error && (
        <p role="alert" className={styles.wrong}>
          {error}
        </p>
      )}
      <div>
        <Button
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          onClick={() =>
            onChange({ ...draft, domains: [...domains, { id: next, name: '', templates: '', replaces: '' }] })
          }
        >
          Add domain
        </Button>
      </div>
    </>
  );
}

/** The first error of a line, with the line that it is about. */
function errorOf(lines: [pointer: string, line: string][], wrong: Wrong): string | undefined {
  return lines
    .map(([pointer, line]) => {
      const error = wrong(pointer);
      return error && `${line} ${error}`;
    })
    .find(Boolean);
}
