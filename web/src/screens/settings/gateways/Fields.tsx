import { ActionIcon, Button, Checkbox, NativeSelect, NumberInput, Textarea, TextInput } from '@mantine/core';
import type { Wrong } from '~/components/FormDialog';
import { IconPlus, IconX } from '~/components/icons';
import { type AttributeDraft, attributePointer, type Draft, type Source } from './draft';
import styles from './Gateways.module.css';

interface Props {
  draft: Draft;
  wrong: Wrong;
  onChange: (draft: Draft) => void;
}

const places = {
  header: { value: 'header', label: 'Header', example: 'X-User' },
  claim: { value: 'claim', label: 'Claim of the token', example: 'sub' },
  query: { value: 'query', label: 'Query parameter', example: 'limit' },
};

interface SourceProps {
  label: string;
  /** What holds without a source. */
  none?: string;
  among: (keyof typeof places)[];
  pointer: string;
  source: Source;
  wrong: Wrong;
  onChange: (source: Source) => void;
}

/** Where a value comes from, and its name there. */
function SourceFields({ label, none, among, pointer, source, wrong, onChange }: SourceProps) {
  const named = among.map((place) => wrong(`${pointer}/${place}`)).find(Boolean);
  const whole = wrong(pointer);
  return (
    <div className={styles.pair}>
      <NativeSelect
        label={label}
        data={[...(none ? [{ value: '', label: none }] : []), ...among.map((place) => places[place])]}
        value={source.from}
        error={source.from ? undefined : (whole ?? named)}
        onChange={(event) => onChange({ ...source, from: event.currentTarget.value as Source['from'] })}
      />
      {source.from && (
        <TextInput
          label={`${label}: name`}
          placeholder={places[source.from].example}
          value={source.name}
          error={named ?? whole}
          autoComplete="off"
          onChange={(event) => onChange({ ...source, name: event.currentTarget.value })}
        />
      )}
    </div>
  );
}

/** The fields of a mapping. */
export function Fields({ draft, wrong, onChange }: Props) {
  const set = (more: Partial<Draft>) => onChange({ ...draft, ...more });
  const text = (field: keyof Draft, pointer: string) => ({
    value: draft[field] as string,
    error: wrong(pointer),
    autoComplete: 'off',
    onChange: (event: React.ChangeEvent<HTMLInputElement | HTMLTextAreaElement>) =>
      set({ [field]: event.currentTarget.value }),
  });
  return (
    <>
      <SourceFields
        label="User"
        none="No user"
        among={['header', 'claim']}
        pointer="/user"
        source={draft.user}
        wrong={wrong}
        onChange={(user) => set({ user })}
      />
      {draft.user.from === 'header' && (
        <Checkbox
          label="Keep the value as it is"
          description="Otherwise its SHA-256 is the user id, so that keys of customers are not stored"
          checked={draft.plain}
          error={wrong('/user/plain')}
          onChange={(event) => set({ plain: event.currentTarget.checked })}
        />
      )}
      <SourceFields
        label="Plan"
        none="The user’s plan, or the default"
        among={['header', 'claim']}
        pointer="/plan"
        source={draft.plan}
        wrong={wrong}
        onChange={(plan) => set({ plan })}
      />
      <SourceFields
        label="Cost"
        none="The same for every request"
        among={['header', 'query']}
        pointer="/cost"
        source={draft.cost}
        wrong={wrong}
        onChange={(cost) => set({ cost })}
      />
      <NumberInput
        label={draft.cost.from ? 'Cost of a request without it' : 'Cost of a request'}
        description={
          draft.cost.from === 'query' ? 'Visitors write the query, so it counts at least this' : undefined
        }
        placeholder="1"
        min={0}
        decimalScale={6}
        value={draft.costDefault}
        error={wrong('/cost/default')}
        onChange={(costDefault) => set({ costDefault })}
      />
      <Textarea
        label="Endpoint templates"
        description="One per line. {id} stands for one segment, and * at the end for all below"
        placeholder={'/orders/{id}\n/files/*'}
        autosize
        minRows={2}
        maxRows={12}
        spellCheck={false}
        classNames={{ input: styles.code }}
        {...text('templates', '/endpoint/templates')}
        error={templatesError(draft.templates, wrong)}
      />
      <div className={styles.pair}>
        <TextInput
          label="Header of the path"
          placeholder="X-Forwarded-Uri"
          {...text('endpointHeader', '/endpoint/header')}
        />
        <TextInput
          label="Header of the method"
          placeholder="X-Forwarded-Method"
          {...text('methodHeader', '/endpoint/method_header')}
        />
      </div>
      <div className={styles.pair}>
        <TextInput
          label="Header of the addresses"
          placeholder="X-Forwarded-For"
          {...text('addressHeader', '/address/header')}
        />
        <NumberInput
          label="Trusted hops"
          description="Proxies between the visitor and your gateway"
          inputWrapperOrder={['label', 'input', 'description', 'error']}
          min={0}
          max={16}
          allowDecimal={false}
          value={draft.hops}
          error={wrong('/address/trusted_hops')}
          onChange={(hops) => set({ hops })}
        />
      </div>
      <Attributes draft={draft} wrong={wrong} onChange={onChange} />
      <Tokens draft={draft} set={set} text={text} wrong={wrong} />
    </>
  );
}

/** The first error of a template, with the line that it is about. */
function templatesError(templates: string, wrong: Wrong): string | undefined {
  const lines = templates.split('\n').filter((line) => line.trim());
  const each = lines.map((line, index) => {
    const error = wrong(`/endpoint/templates/${index}`);
    return error && `${line.trim()} ${error}`;
  });
  return wrong('/endpoint/templates') ?? each.find(Boolean);
}

const most = 16;

function Attributes({ draft, wrong, onChange }: Props) {
  const { attributes } = draft;
  const set = (next: AttributeDraft[]) => onChange({ ...draft, attributes: next });
  const next = Math.max(-1, ...attributes.map(({ id }) => id)) + 1;
  const error = wrong('/attributes');
  return (
    <fieldset className={styles.group}>
      <legend>Attributes</legend>
      {attributes.map((one, index) => {
        const change = (more: Partial<AttributeDraft>) =>
          set(attributes.map((other) => (other.id === one.id ? { ...one, ...more } : other)));
        return (
          <div key={one.id} className={styles.attribute}>
            <TextInput
              label={`Attribute ${index + 1}`}
              placeholder="org"
              value={one.attribute}
              onChange={(event) => change({ attribute: event.currentTarget.value })}
            />
            <SourceFields
              label={`Source ${index + 1}`}
              among={['header', 'claim']}
              pointer={attributePointer(one)}
              source={one}
              wrong={wrong}
              onChange={change}
            />
            <ActionIcon
              aria-label={`Remove attribute ${index + 1}`}
              onClick={() => set(attributes.filter(({ id }) => id !== one.id))}
            >
              <IconX size={14} />
            </ActionIcon>
          </div>
        );
      })}
      {error && (
        <p role="alert" className={styles.wrong}>
          {error}
        </p>
      )}
      <div>
        <Button
          variant="default"
          leftSection={<IconPlus size={14} aria-hidden />}
          disabled={attributes.length >= most}
          onClick={() => set([...attributes, { id: next, attribute: '', from: 'header', name: '' }])}
        >
          Add attribute
        </Button>
      </div>
    </fieldset>
  );
}

interface TokensProps {
  draft: Draft;
  set: (more: Partial<Draft>) => void;
  text: (field: keyof Draft, pointer: string) => object;
  wrong: Wrong;
}

/** How tokens are verified that claims are read from. */
function Tokens({ draft, set, text, wrong }: TokensProps) {
  return (
    <fieldset className={styles.group}>
      <legend>Tokens (JWT)</legend>
      <NativeSelect
        label="Verify tokens"
        description="Claims are read from verified tokens only"
        data={[
          { value: '', label: 'No: claims are not read' },
          { value: 'url', label: 'With keys from a URL (JWKS)' },
          { value: 'inline', label: 'With keys that are written here (JWKS)' },
        ]}
        value={draft.keys}
        error={wrong('/jwt')}
        onChange={(event) => set({ keys: event.currentTarget.value as Draft['keys'] })}
      />
      {draft.keys === 'url' && (
        <TextInput
          label="URL of the keys"
          placeholder="https://id.example.com/.well-known/jwks.json"
          {...text('jwksUrl', '/jwt/jwks_url')}
        />
      )}
      {draft.keys === 'inline' && (
        <Textarea
          label="Keys"
          description="Public keys only"
          placeholder='{"keys":[…]}'
          autosize
          minRows={3}
          maxRows={12}
          spellCheck={false}
          classNames={{ input: styles.code }}
          {...text('jwks', '/jwt/jwks')}
        />
      )}
      {draft.keys && (
        <>
          <div className={styles.pair}>
            <TextInput
              label="Issuer"
              placeholder="https://id.example.com"
              {...text('issuer', '/jwt/issuer')}
            />
            <TextInput label="Audience" placeholder="api" {...text('audience', '/jwt/audience')} />
          </div>
          <TextInput
            label="Header of the token"
            placeholder="Authorization"
            {...text('tokenHeader', '/jwt/header')}
          />
          <Checkbox
            label="Let requests without a valid token pass, without claims"
            checked={draft.optional}
            error={wrong('/jwt/optional')}
            onChange={(event) => set({ optional: event.currentTarget.checked })}
          />
        </>
      )}
    </fieldset>
  );
}
