import { Button, Group, SegmentedControl, Textarea } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import type { Tagged } from '~/api/client';
import { authorizeKind, descriptorKind, type Kind, mappingQuery, type Stored } from '~/api/gateways';
import { ConfirmAction } from '~/components/ConfirmAction';
import { FormError, fieldErrors, submits } from '~/components/FormDialog';
import { Leaving } from '~/components/Leaving';
import { Card } from '~/components/Page';
import { Query } from '~/components/Query';
import type { SettingsSearch } from '~/search';
import { useRole, useTenant } from '~/session';
import { DescriptorSample } from './DescriptorSample';
import styles from './Gateways.module.css';
import { EnvoyRecipe, HttpRecipes } from './Recipes';
import { Sample } from './Sample';
import { useMapping } from './useMapping';

export default function Gateways() {
  const tenant = useTenant();
  const navigate = useNavigate();
  const { gateway } = useSearch({ strict: false }) as SettingsSearch;
  return (
    <div className={styles.column}>
      <SegmentedControl
        aria-label="Gateway"
        className={styles.choice}
        data={[
          { value: 'http', label: 'HTTP: nginx …' },
          { value: 'envoy', label: 'gRPC: Envoy, Istio …' },
        ]}
        value={gateway ?? 'http'}
        onChange={(next) =>
          navigate({
            to: '.',
            search: (old: object) => ({ ...old, gateway: next === 'envoy' ? next : undefined }),
            replace: true,
          })
        }
      />
      {gateway === 'envoy' ? (
        <Stack
          key="envoy"
          kind={descriptorKind}
          tenant={tenant}
          effect="Within 2 s only this tenant’s domain and the default keys count. The audit log can undo this."
          Sample={DescriptorSample}
          recipes={<EnvoyRecipe tenant={tenant} />}
        />
      ) : (
        <Stack
          key="http"
          kind={authorizeKind}
          tenant={tenant}
          effect="Within 2 s requests have no user, and rules for users no longer match. The audit log can undo this."
          Sample={Sample}
          recipes={<HttpRecipes />}
        />
      )}
    </div>
  );
}

interface Props<M extends object> {
  kind: Kind<M>;
  tenant: string;
  effect: string;
  Sample: React.ComponentType<{
    tenant: string;
    mapping: M | undefined;
    onRefused: (words: string | undefined) => void;
  }>;
  recipes: React.ReactNode;
}

function Stack<M extends object>(props: Props<M>) {
  const stored = useQuery(mappingQuery(props.kind, props.tenant));
  return <Query query={stored}>{(saved) => <Mapping {...props} saved={saved} />}</Query>;
}

function Mapping<M extends object>({ saved, ...props }: Props<M> & { saved: Tagged<Stored<M>> }) {
  const { kind, tenant } = props;
  const { edit } = useRole();
  const { is_default } = saved.value;
  const editor = useMapping(tenant, kind, saved);
  const [refused, setRefused] = useState<string>();
  const [removing, setRemoving] = useState(false);
  const { rest } = fieldErrors(editor.error);

  return (
    <div className={styles.columns}>
      <div className={styles.column}>
        <Card title="Mapping" lead={is_default && 'Not set. The defaults apply.'}>
          <form className={styles.stack} onSubmit={submits(() => editor.mapping && editor.dirty && editor.save())}>
            <Textarea
              label="JSON"
              autosize
              minRows={8}
              maxRows={32}
              spellCheck={false}
              readOnly={!edit}
              classNames={{ input: styles.code }}
              value={editor.text}
              error={editor.textError ?? refused}
              onChange={(event) => editor.type(event.currentTarget.value)}
            />
            <FormError>{rest()}</FormError>
            {edit && (
              <Group gap={8}>
                <Button type="submit" disabled={!editor.dirty || !editor.mapping} loading={editor.pending}>
                  Save
                </Button>
                {editor.dirty && (
                  <Button variant="default" onClick={editor.discard}>
                    Discard edits
                  </Button>
                )}
                {is_default && !editor.dirty && (
                  <Button variant="default" onClick={() => editor.type(JSON.stringify(kind.example, null, 2))}>
                    Insert example
                  </Button>
                )}
                {!is_default && (
                  <Button variant="default" onClick={() => setRemoving(true)}>
                    Remove mapping …
                  </Button>
                )}
              </Group>
            )}
          </form>
          {editor.conflict}
          <Leaving when={editor.dirty} what="Your changes" />
        </Card>
        {props.recipes}
      </div>
      <div className={styles.column}>
        <props.Sample tenant={tenant} mapping={editor.mapping} onRefused={setRefused} />
      </div>
      <ConfirmAction
        opened={removing}
        onClose={() => setRemoving(false)}
        title="Remove this mapping?"
        effect={props.effect}
        verb="Remove mapping"
        destructive
        gone={is_default}
        action={editor.remove}
      />
    </div>
  );
}
